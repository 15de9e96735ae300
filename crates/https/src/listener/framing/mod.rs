//! Refuses requests whose length can be read in two ways.
//!
//! A request with both `Transfer-Encoding` and `Content-Length` "ought to be handled as an error" (RFC 9112 §6.1): where
//! one reader believes the one and the next reader the other, a second request can hide in the body of the first. hyper
//! believes the encoding and says nothing, so [`FramingGuard`] reads along, and spoils the head of such a request: hyper
//! answers 400 and closes the connection. So are requests with other encodings than `chunked`, also below or beside it:
//! hyper hands out their bytes as if they had none.
//!
//! It is of use only while it knows where requests begin. So it follows bodies byte by byte, and what it cannot follow ends
//! the connection: of that byte hyper sees a NUL, and of what comes behind nothing.
//!
//! All of this can go once hyper does it. There, `Server::parse` (`proto/h1/role.rs`) would have to refuse where it now sets
//! `keep_alive = false` (`is_te && is_cl`), and any `Transfer-Encoding` but a single `chunked`; and `read_trailer`
//! (`proto/h1/decode.rs`) would have to refuse a bare LF, as `read_extension` does. The first needs a switch in
//! `server::conn::http1::Builder`: RFC 9112 §6.3 leaves it to servers.

mod chunks;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::chunks::ChunkedBodyState;

/// Bytes of a line of a head that are looked at; the names and numbers that matter are shorter.
const LINE_BYTES: usize = 64;

/// Stands for a byte that must not be understood: a NUL is an error everywhere but in data.
const SPOILED: u8 = 0;

/// Follows the framing of HTTP/1.1 requests through a stream.
#[derive(Debug)]
enum RequestFraming {
    /// In a head, or in front of one.
    Head(RequestHead),
    /// In a body, with this number of bytes left.
    Length(u64),
    /// In a body in chunks.
    Chunked(ChunkedBodyState),
    /// Behind what cannot be followed.
    Lost,
}

/// The headers of the head that is being read, as far as they have come.
#[derive(Debug, Default)]
struct RequestHead {
    /// The request line was read.
    has_begun: bool,
    length: Option<u64>,
    is_chunked: bool,
    /// It has an encoding that is not understood, or a length in a line too long to be read.
    is_odd: bool,
    /// The beginning of the line that is being read.
    line: Vec<u8>,
    /// The line has anything but its end.
    is_line_filled: bool,
}

impl Default for RequestFraming {
    fn default() -> Self {
        Self::Head(RequestHead::default())
    }
}

impl RequestFraming {
    /// Reads along and returns how many of `bytes` may be seen. If those are not all, the last of them is spoiled.
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

    /// Moves on behind a byte that is not one of a body.
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

/// Counts as many of `length` bytes as are left, and returns their number.
fn take_bytes(left: &mut u64, length: usize) -> usize {
    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(length);
    *left = left.saturating_sub(taken.try_into().unwrap_or(u64::MAX));
    taken
}

/// A head that may be read in two ways, or in none.
#[derive(Debug)]
struct AmbiguousHeadError;

impl RequestHead {
    /// Takes in a byte; at the end of the head says what follows.
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
        // Empty lines before a request mean nothing (RFC 9112 §2.2).
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
            // What is no number is refused by hyper.
            let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            self.length = Some(length.unwrap_or(0));
        }
    }
}

/// A connection whose requests are watched.
#[derive(Debug)]
pub(super) struct FramingGuard<S> {
    stream: S,
    framing: RequestFraming,
}

impl<S> FramingGuard<S> {
    pub(super) fn new(stream: S) -> Self {
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
            // The end of the stream.
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
