//! The faults that a gateway adds to the responses that pass through it.

use crate::wire::Request;

/// Which requests get faults, the faults, and the rate of bodies.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Selects the requests that get faults. All others pass unchanged.
    pub matching: fn(&Request) -> bool,
    /// The i-th matching request gets `faults[i]`; later ones pass unchanged.
    pub faults: Vec<Fault>,
    /// The rate limit for each body.
    pub bytes_per_second: Option<u64>,
}

impl Default for Plan {
    /// Passes everything unchanged.
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl Plan {
    /// These faults for the first GET requests.
    pub fn of(faults: Vec<Fault>) -> Self {
        Self { matching: |request| request.method == "GET", faults, bytes_per_second: None }
    }
}

/// The fault of one request. Offsets count the bytes of the response's body, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The response passes unchanged.
    None,
    /// The connection is closed after this number of bytes of the body.
    Cut(u64),
    /// A response with this status and these headers and an empty body; the server is not asked.
    Status(u16, Vec<(&'static str, String)>),
    /// Like `Status`, with a body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// One bit of this byte of the body is flipped.
    Corrupt(u64),
    /// The body is shortened to this number of bytes, and `Content-Length` is adjusted, so it
    /// looks complete.
    Short(u64),
}
