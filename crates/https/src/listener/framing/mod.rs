//! Rejects requests whose length could be interpreted in two ways.
//!
//! A request with both `Transfer-Encoding` and `Content-Length` "ought to be handled as an error"
//! (RFC 9112 §6.1). If one HTTP implementation uses the first header and the next one the second,
//! a second request can hide in the body of the first (request smuggling). hyper silently uses
//! `Transfer-Encoding`. [`FramingGuard`] therefore follows the bytes that hyper reads and corrupts
//! the head of such a request, so that hyper answers 400 and closes the connection. Requests with
//! any transfer coding other than a single `chunked` are handled in the same way, because hyper
//! passes on their bytes as if they were not encoded.
//!
//! The guard works only while it knows where requests begin, so it follows bodies byte by byte.
//! When it cannot follow the framing, it replaces the offending byte with a NUL and ends the
//! stream after it.
//!
//! This module can be removed once hyper makes these checks. `Server::parse` (`proto/h1/role.rs`)
//! would have to reject a request where it now sets `keep_alive = false` (`is_te && is_cl`), and
//! any `Transfer-Encoding` except a single `chunked`. `read_trailer` (`proto/h1/decode.rs`) would
//! have to reject a bare LF, as `read_extension` does. The first check needs an option in
//! `server::conn::http1::Builder`, because RFC 9112 §6.3 leaves it to servers.

mod chunks;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::chunks::ChunkedBodyState;

/// Maximum number of bytes of a header line that are examined. The names and numbers that matter
/// here are shorter.
const LINE_BYTES: usize = 64;

/// Replacement for a byte that must not be accepted: a NUL is an error everywhere except in body
/// data.
const SPOILED: u8 = 0;

/// Follows the framing of HTTP/1.1 requests through a stream.
#[derive(Debug)]
enum RequestFraming {
    /// Before a head or inside one.
    Head(RequestHead),
    /// In a body with a known length, with this number of bytes left.
    Length(u64),
    /// In a chunked body.
    Chunked(ChunkedBodyState),
    /// The framing was lost, so everything after this point is rejected.
    Lost,
}

/// The part of the current head that has been read so far.
#[derive(Debug, Default)]
struct RequestHead {
    /// True once the request line was read.
    has_begun: bool,
    length: Option<u64>,
    is_chunked: bool,
    /// True if the head contains an unsupported transfer coding, or a length in a line that is too
    /// long to examine.
    is_odd: bool,
    /// The beginning of the current line.
    line: Vec<u8>,
    /// True if the current line contains anything besides its line ending.
    is_line_filled: bool,
}

impl Default for RequestFraming {
    fn default() -> Self {
        Self::Head(RequestHead::default())
    }
}

impl RequestFraming {
    /// Follows `bytes` and returns how many of them hyper may read. If the framing is lost, the
    /// last of these bytes was replaced by [`SPOILED`].
    fn scan_bytes(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        while let Some(byte) = bytes.get_mut(at) {
            let byte = match self {
                Self::Length(left) | Self::Chunked(ChunkedBodyState::Data(left)) if *left > 0 => {
                    at += take_bytes(left, bytes.len() - at);
                    continue;
                }
                Self::Length(_) => {
                    *self = Self::default();
                    continue;
                }
                _ => byte,
            };
            at += 1;
            if let Err(AmbiguousHeadError) = self.scan_byte(*byte) {
                *byte = SPOILED;
                *self = Self::Lost;
                break;
            }
        }
        at
    }

    /// Advances over one byte that is not body data.
    fn scan_byte(&mut self, byte: u8) -> Result<(), AmbiguousHeadError> {
        let next = match self {
            Self::Head(head) => head.scan_byte(byte)?,
            Self::Chunked(chunks) => match chunks.next_state(byte).ok_or(AmbiguousHeadError)? {
                ChunkedBodyState::End => Some(Self::default()),
                next => Some(Self::Chunked(next)),
            },
            Self::Length(_) | Self::Lost => return Err(AmbiguousHeadError),
        };
        if let Some(next) = next {
            *self = next;
        }
        Ok(())
    }
}

/// Subtracts up to `length` bytes from `left` and returns how many were subtracted.
fn take_bytes(left: &mut u64, length: usize) -> usize {
    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(length);
    *left = left.saturating_sub(taken.try_into().unwrap_or(u64::MAX));
    taken
}

/// The head is invalid or could be interpreted in two ways.
#[derive(Debug)]
struct AmbiguousHeadError;

impl RequestHead {
    /// Advances over one byte. At the end of the head, returns the framing of what follows.
    fn scan_byte(&mut self, byte: u8) -> Result<Option<RequestFraming>, AmbiguousHeadError> {
        if byte != b'\n' {
            self.is_line_filled |= byte != b'\r';
            if self.line.len() < LINE_BYTES {
                self.line.push(byte);
            }
            return Ok(None);
        }
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_line_filled) {
            if std::mem::replace(&mut self.has_begun, true) {
                self.parse_header(&line);
            }
            return Ok(None);
        }
        // Empty lines before a request are ignored (RFC 9112 §2.2).
        if !self.has_begun {
            return Ok(None);
        }
        match (self.is_chunked, self.length) {
            _ if self.is_odd => Err(AmbiguousHeadError),
            (true, Some(_)) => Err(AmbiguousHeadError),
            (true, None) => Ok(Some(RequestFraming::Chunked(ChunkedBodyState::Start))),
            (false, None | Some(0)) => Ok(Some(RequestFraming::default())),
            (false, Some(length)) => Ok(Some(RequestFraming::Length(length))),
        }
    }

    fn parse_header(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return;
        };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.is_odd |= self.is_chunked || !value.eq_ignore_ascii_case(b"chunked");
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            self.is_odd |= line.len() == LINE_BYTES;
            // A length that is not a number is ignored here, because hyper itself rejects it.
            let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            self.length = Some(length.unwrap_or(0));
        }
    }
}

/// A connection whose request framing is checked.
#[derive(Debug)]
pub struct FramingGuard<S> {
    stream: S,
    framing: RequestFraming,
}

impl<S> FramingGuard<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, framing: RequestFraming::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FramingGuard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let RequestFraming::Lost = this.framing {
            // An empty read reports the end of the stream.
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        let seen = match buffer.filled_mut().get_mut(before..) {
            Some(new) => this.framing.scan_bytes(new),
            None => 0,
        };
        buffer.set_filled(before + seen);
        Poll::Ready(Ok(()))
    }
}

crate::delegate::delegate_writes!(FramingGuard, stream, AsyncWrite);
