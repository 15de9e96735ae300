//! The behaviour of an upstream.

/// The treatment of one request: some of it is read, something is said, and then?
#[derive(Debug, Clone)]
pub struct Script {
    /// The part that is read before something is said.
    pub reads: Reads,
    /// The answer.
    pub says: Says,
    /// The fate of the connection.
    pub then: Then,
}

/// The part of a request that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// The head.
    Head,
    /// The head and this number of bytes of the body.
    Part(u64),
    /// All.
    Everything,
}

/// An answer.
#[derive(Debug, Clone)]
pub enum Says {
    /// Nothing.
    Nothing,
    /// 200 with the head of the request as the body, byte for byte.
    Head,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// The fate of the connection after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The rest of this request is read, then the next one.
    NextRequest,
    /// The rest of this request is read.
    ReadOn,
    /// The connection is closed, with a word (`close_notify`).
    Close,
    /// The connection is reset.
    Reset,
    /// Nothing: the connection stays open and is not read from.
    Hang,
}

impl Script {
    /// Answers the whole request with its own head.
    pub fn echo() -> Self {
        Self { reads: Reads::Everything, says: Says::Head, then: Then::NextRequest }
    }

    /// Answers the whole request with these bytes.
    pub fn answer(bytes: impl Into<Vec<u8>>) -> Self {
        Self { says: Says::Bytes(bytes.into()), ..Self::echo() }
    }

    /// Answers the whole request with this status and body.
    pub fn status(status: u16, body: &str) -> Self {
        Self::answer(answer(status, body))
    }

    /// Answers with these bytes before a byte of the body is read, and reads on.
    pub fn early(bytes: impl Into<Vec<u8>>) -> Self {
        Self { reads: Reads::Head, ..Self::answer(bytes) }
    }

    /// Reads all of it and never answers.
    pub fn silent() -> Self {
        Self { reads: Reads::Everything, says: Says::Nothing, then: Then::ReadOn }
    }

    /// Reads so much, says nothing, and then.
    pub fn stop(reads: Reads, then: Then) -> Self {
        Self { reads, says: Says::Nothing, then }
    }
}

/// A plain answer as bytes.
pub fn answer(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Scripted\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
