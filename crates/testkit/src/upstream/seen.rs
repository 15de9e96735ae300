//! The requests that an upstream was sent.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock;

/// The part of a body that is kept.
const KEPT_BYTES: usize = 64 * 1024;

/// The end of the sending of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was complete.
    Complete,
    /// The connection ended before, or what came was no HTTP.
    Aborted,
}

/// A request that arrived.
#[derive(Debug)]
pub struct Seen {
    /// The head with its empty line, as it came.
    pub head: String,
    /// On which connection it came, counted from zero.
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

    /// Bytes of the body so far, without framing.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// The first 64 KiB of the body.
    pub fn body(&self) -> Vec<u8> {
        lock(&self.state).body.clone()
    }

    /// The end of the request, if it came.
    pub fn end(&self) -> Option<End> {
        lock(&self.state).end
    }

    /// The request line.
    pub fn request_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// All values of the header with this name in lower case, in order.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
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
