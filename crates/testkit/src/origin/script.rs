//! The object that an [`Origin`](super::Origin) serves, and how the origin misbehaves.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;

use crate::serving::Fault;

/// One object, served at every path, and the faults of its responses.
#[derive(Debug, Clone)]
pub struct Script {
    /// The object that is served first.
    pub object: Object,
    /// From this answered GET on (0-based), this object is served instead, as if it had been
    /// replaced on the server.
    pub replaced: Option<(usize, Object)>,
    /// How `Range` is treated.
    pub ranges: Ranges,
    /// Most bytes that a response to a range has.
    pub most_part_bytes: Option<u64>,
    /// True if `If-Range` is ignored: a part may be of another object.
    pub ignores_conditions: bool,
    /// True if the response to a request without a range is a 206 as well.
    pub is_always_part: bool,
    /// How the length of a body is announced.
    pub framing: Framing,
    /// True if a chunked body ends without its last chunk.
    pub cut_end_mark: bool,
    /// Replaces the `Content-Range` of every 206.
    pub content_range: Option<String>,
    /// Replaces the `Content-Length` of every 206.
    pub part_length: Option<u64>,
    /// Extra response headers.
    pub headers: Vec<(String, String)>,
    /// The status of the response to HEAD, if it is not that of the object.
    pub head_status: Option<u16>,
    /// Requires `Authorization: Basic` with this `user:password`. Other requests get 401.
    pub basic_auth: Option<String>,
    /// A header that every request must have. Other requests get 403.
    pub required_header: Option<(String, String)>,
    /// Maps a path to the `Location`s of its 302 responses: one for each request, and then the
    /// last. A path that leads to itself is a loop.
    pub redirects: HashMap<String, Vec<String>>,
    /// Maps a path to (n, status): from the n-th request (0-based) on, the response has this
    /// status, as for an expired presigned URL.
    pub expires: HashMap<String, (usize, u16)>,
    /// Rate of every body in bytes per second; unlimited if `None`.
    pub rate: Option<u64>,
    /// True if all connections share the rate.
    pub shared_rate: bool,
    /// Each of so many ranges is ignored: the response is the whole object.
    pub ignored_ranges: Option<usize>,
    /// Time between a request and its response.
    pub latency: Duration,
    /// The n-th answered GET gets the n-th fault; later ones get none.
    pub faults: Vec<Fault>,
    /// True if requests for ranges with an end get no fault and are not counted.
    pub spares_bounded: bool,
}

impl Script {
    /// Serves `body` with a strong `ETag` and ranges, without faults.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self {
            object: Object::new(body, Some("\"v1\"")),
            replaced: None,
            ranges: Ranges::Served,
            most_part_bytes: None,
            ignores_conditions: false,
            is_always_part: false,
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
            shared_rate: false,
            ignored_ranges: None,
            latency: Duration::ZERO,
            faults: Vec::new(),
            spares_bounded: false,
        }
    }
}

/// One version of the object.
#[derive(Debug, Clone)]
pub struct Object {
    /// The bytes of the object.
    pub body: Bytes,
    /// The `ETag`, with quotes and, if it is weak, `W/`.
    pub etag: Option<String>,
    /// The `Last-Modified` header, as an HTTP date, or [`NOW`].
    pub last_modified: Option<String>,
}

/// A `Last-Modified` that is always the time of the response.
pub const NOW: &str = "now";

impl Object {
    /// An object without `Last-Modified`.
    pub fn new(body: impl Into<Bytes>, etag: Option<&str>) -> Self {
        Self { body: body.into(), etag: etag.map(str::to_owned), last_modified: None }
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.body.len() as u64
    }

    /// Returns true if the object has no bytes.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }
}

/// How a server treats `Range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranges {
    /// Ranges are announced by `Accept-Ranges: bytes`, and supported.
    Served,
    /// Ranges are supported but not announced.
    Silent,
    /// The server sends `Accept-Ranges: none` and always responds with 200.
    Refused,
    /// Ranges are announced, but the response is always 200, as from some caches in front of a
    /// real origin.
    Claimed,
    /// Ranges are not announced, and the response is always 200.
    Unknown,
}

/// How a server marks the end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A correct `Content-Length`.
    Length,
    /// This `Content-Length`, which is wrong.
    Lie(u64),
    /// Chunked, without a length.
    Chunked,
    /// The end of the connection is the end of the body.
    UntilClose,
}
