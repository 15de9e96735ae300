//! How an upstream behaves.

/// How one request is treated: how much of it is read, the response, and what happens then.
#[derive(Debug, Clone)]
pub struct Script {
    /// The part of the request that is read before the response is sent.
    pub reads: Reads,
    /// The response.
    pub says: Says,
    /// What happens to the connection then.
    pub then: Then,
}

/// The part of a request that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Only the head.
    Head,
    /// The head and this number of bytes of the body.
    Part(u64),
    /// The complete request.
    Everything,
}

/// A response.
#[derive(Debug, Clone)]
pub enum Says {
    /// No response.
    Nothing,
    /// Status 200 with the unchanged head of the request as the body.
    Head,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// What happens to the connection after the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The rest of this request is read, then the next request.
    NextRequest,
    /// The rest of this request and everything after it is read and ignored.
    ReadOn,
    /// The connection is closed with a `close_notify`.
    Close,
    /// The connection is reset.
    Reset,
    /// The connection stays open but is not read from.
    Hang,
}

impl Script {
    /// Responds to the complete request with the request's head.
    pub fn echo() -> Self {
        Self { reads: Reads::Everything, says: Says::Head, then: Then::NextRequest }
    }

    /// Responds to the complete request with these bytes.
    pub fn answer(bytes: impl Into<Vec<u8>>) -> Self {
        Self { says: Says::Bytes(bytes.into()), ..Self::echo() }
    }

    /// Responds to the complete request with this status and body.
    pub fn status(status: u16, body: &str) -> Self {
        Self::answer(answer(status, body))
    }

    /// Responds with these bytes before any byte of the body is read, and then reads the body.
    pub fn early(bytes: impl Into<Vec<u8>>) -> Self {
        Self { reads: Reads::Head, ..Self::answer(bytes) }
    }

    /// Reads the complete request and never responds.
    pub fn silent() -> Self {
        Self { reads: Reads::Everything, says: Says::Nothing, then: Then::ReadOn }
    }

    /// Reads this part of the request, sends nothing, and then does this to the connection.
    pub fn stop(reads: Reads, then: Then) -> Self {
        Self { reads, says: Says::Nothing, then }
    }
}

/// The bytes of a simple response.
pub fn answer(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Scripted\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
