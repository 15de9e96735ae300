//! The faults that a gateway adds to the answers that pass through it.

use crate::wire::Request;

/// The requests that suffer, their faults, and the speed of bodies.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The requests that faults are for; all others pass.
    pub matching: fn(&Request) -> bool,
    /// The i-th matching request suffers `faults[i]`; later ones pass.
    pub faults: Vec<Fault>,
    /// Bound of the bodies of one connection.
    pub bytes_per_second: Option<u64>,
}

impl Default for Plan {
    /// Everything passes.
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl Plan {
    /// These faults for the first GETs.
    pub fn of(faults: Vec<Fault>) -> Self {
        Self { matching: |request| request.method == "GET", faults, bytes_per_second: None }
    }
}

/// The fault of one request. Offsets count the bytes of its own body, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It passes.
    None,
    /// The connection is closed after this number of bytes of the body.
    Cut(u64),
    /// This status with these headers and no body; the server is not asked.
    Status(u16, Vec<(&'static str, String)>),
    /// As `Status`, with a body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// One bit of this byte of the body is flipped.
    Corrupt(u64),
    /// The body ends after this number of bytes as if that were all: `Content-Length` says so.
    Short(u64),
}
