//! The object that an [`Origin`](super::Origin) serves, and its misbehaviour.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;

/// One object, served at every path, and the faults that happen meanwhile.
#[derive(Debug, Clone)]
pub struct Script {
    /// The object as the first requests see it.
    pub object: Object,
    /// From this answered GET on (0-based), another object is served: it was replaced on the server.
    pub replaced: Option<(usize, Object)>,
    /// The treatment of `Range`.
    pub ranges: Ranges,
    /// The announcement of a body's length.
    pub framing: Framing,
    /// A chunked body ends without its last chunk.
    pub cut_end_mark: bool,
    /// Overrides the `Content-Range` of every 206.
    pub content_range: Option<String>,
    /// `Content-Length` of every 206, if it is not to be the true one.
    pub part_length: Option<u64>,
    /// Extra response headers.
    pub headers: Vec<(String, String)>,
    /// `HEAD` is answered with this status instead of the head of the object.
    pub head_status: Option<u16>,
    /// `user:password` that `Authorization: Basic` must carry, else 401.
    pub basic_auth: Option<String>,
    /// A header that every request must carry, else 403.
    pub required_header: Option<(String, String)>,
    /// Path → `Location` of a 302, one for each visit and then the last; a path that leads to itself is
    /// a loop.
    pub redirects: HashMap<String, Vec<String>>,
    /// Path → (n, status): answered with the status from the n-th request (0-based) on, as a presigned URL
    /// that expires.
    pub expires: HashMap<String, (usize, u16)>,
    /// Bytes per second of every body; unlimited when `None`.
    pub rate: Option<u64>,
    /// Time between the request and its answer.
    pub latency: Duration,
    /// The n-th answered GET meets the n-th fault; later ones meet none.
    pub faults: Vec<Fault>,
}

impl Script {
    /// `body` with a strong `ETag` and ranges, served without a fault.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self {
            object: Object::new(body, Some("\"v1\"")),
            replaced: None,
            ranges: Ranges::Served,
            framing: Framing::Length,
            cut_end_mark: false,
            content_range: None,
            part_length: None,
            headers: Vec::new(),
            head_status: None,
            basic_auth: None,
            required_header: None,
            redirects: HashMap::new(),
            expires: HashMap::new(),
            rate: None,
            latency: Duration::ZERO,
            faults: Vec::new(),
        }
    }
}

/// One version of the object.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its bytes.
    pub body: Bytes,
    /// Its `ETag`, with quotes and, when weak, `W/`.
    pub etag: Option<String>,
    /// Its `Last-Modified`, as an HTTP date.
    pub last_modified: Option<String>,
}

impl Object {
    /// An object without `Last-Modified`.
    pub fn new(body: impl Into<Bytes>, etag: Option<&str>) -> Self {
        Self { body: body.into(), etag: etag.map(str::to_owned), last_modified: None }
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.body.len() as u64
    }

    /// True for a body of no bytes.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }
}

/// The treatment of `Range` by a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranges {
    /// `Accept-Ranges: bytes`, and they work.
    Served,
    /// They work but are not announced.
    Silent,
    /// `Accept-Ranges: none`, always 200.
    Refused,
    /// Announced, but always 200: a cache in front of a real origin.
    Claimed,
    /// Not announced and always 200.
    Unknown,
}

/// The framing by which a server tells where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A true `Content-Length`.
    Length,
    /// A `Content-Length` that is not the number of bytes that follow.
    Lie(u64),
    /// Chunked, without a length.
    Chunked,
    /// The connection is closed at the end, nothing else.
    UntilClose,
}

/// The fault while one GET is answered. Offsets are those of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The connection is closed before this byte.
    CutAt(u64),
    /// The connection is reset (TCP RST) before this byte.
    ResetAt(u64),
    /// Nothing more comes from this byte on, and the connection stays open.
    StallAt(u64),
    /// This status, with `Retry-After` if given, instead of the body.
    Status(u16, Option<String>),
    /// The connection is closed without an answer.
    Refuse,
    /// The connection stays open without an answer.
    Silence,
}
