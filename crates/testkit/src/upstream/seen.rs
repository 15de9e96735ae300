//! The requests that an upstream has received.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::serving::lock;
use crate::wire::Incoming;

/// The length of the part of a body that is kept.
const KEPT_BYTES: usize = 64 * 1024;

/// How the transmission of a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The request was complete.
    Complete,
    /// The connection ended early, or the bytes were not valid HTTP.
    Aborted,
}

/// A request that has arrived.
#[derive(Debug)]
pub struct Seen {
    /// The head exactly as received, with its empty line.
    pub head: String,
    /// The number of its connection, counted from zero.
    pub connection: usize,
    body_bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    body: Vec<u8>,
    end: Option<End>,
}

impl Seen {
    pub(super) fn new(head: String, connection: usize) -> Self {
        Self { head, connection, body_bytes: AtomicU64::new(0), state: Mutex::default() }
    }

    /// Bytes of the body received so far, without framing.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// The first 64 KiB of the body.
    pub fn body(&self) -> Vec<u8> {
        lock(&self.state).body.clone()
    }

    /// How the request ended, if it has ended.
    pub fn end(&self) -> Option<End> {
        lock(&self.state).end
    }

    /// The request line.
    pub fn request_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// All values of the header with this (lower-case) name, in order.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// Determines the body's framing (RFC 9112 §6.3). An ambiguous head is an error: a proxy must
    /// not pass it on.
    pub(super) fn framing(&self) -> io::Result<Incoming> {
        let lengths = self.headers("content-length");
        let codings = self.headers("transfer-encoding");
        match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Ok(Incoming::Length(0)),
            ([length], []) => length.parse().map(Incoming::Length).map_err(io::Error::other),
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Incoming::Chunk(0)),
            _ => Err(io::Error::other(format!("ambiguous framing: {:?}", self.head))),
        }
    }

    pub(super) fn take(&self, piece: &[u8]) {
        self.body_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let room = KEPT_BYTES.saturating_sub(state.body.len()).min(piece.len());
        state.body.extend_from_slice(&piece[..room]);
    }

    pub(super) fn finish(&self, end: End) {
        lock(&self.state).end.get_or_insert(end);
    }
}
