//! Refuses requests whose length can be read in two ways.
//!
//! A request with both `Transfer-Encoding` and `Content-Length` "ought to be handled as an error" (RFC 9112 §6.1): where
//! one reader believes the one and the next reader the other, a second request can hide in the body of the first. hyper
//! believes the encoding and says nothing, so [`Watched`] reads along, and spoils the head of such a request: hyper
//! answers 400 and closes the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Of a line only so much is looked at; the names and numbers that matter are shorter.
const LINE_BYTES: usize = 64;

/// Stands for the end of a head that must not be understood.
const SPOILED: u8 = 0;

/// What the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A line of a head.
    Head,
    /// So many bytes of a body or of a chunk.
    Data { left: u64, then: After },
    /// A line with the size of a chunk (RFC 9112 §7.1).
    ChunkSize,
    /// The line that ends a chunk.
    ChunkEnd,
    /// A line of a trailer section.
    Trailer,
    /// Something that hyper is going to refuse: nothing that follows is a request.
    Nonsense,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Head,
    ChunkEnd,
}

/// Follows the framing of HTTP/1.1 requests through a stream.
#[derive(Debug)]
struct Framing {
    part: Part,
    /// The beginning of the line that is being read.
    line: Vec<u8>,
    /// The line has anything but its end.
    is_line_empty: bool,
    head: Head,
}

/// What the head that is being read has said so far.
#[derive(Debug, Default, Clone, Copy)]
struct Head {
    has_begun: bool,
    length: Option<u64>,
    is_chunked: bool,
}

impl Default for Framing {
    fn default() -> Self {
        Self {
            part: Part::Head,
            line: Vec::with_capacity(LINE_BYTES),
            is_line_empty: true,
            head: Head::default(),
        }
    }
}

impl Framing {
    /// Reads along. The last byte of a head that must be refused is spoiled.
    fn read(&mut self, bytes: &mut [u8]) {
        let mut rest = bytes;
        loop {
            if let Part::Data { left, then } = self.part {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                let left = left.saturating_sub(taken.try_into().unwrap_or(u64::MAX));
                self.part = match (left, then) {
                    (0, After::Head) => Part::Head,
                    (0, After::ChunkEnd) => Part::ChunkEnd,
                    _ => Part::Data { left, then },
                };
                rest = rest.split_at_mut(taken).1;
            }
            if self.part == Part::Nonsense {
                return;
            }
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (line, following) = rest.split_at_mut(end.map_or(rest.len(), |end| end + 1));
            self.extend(line);
            if end.is_none() {
                return;
            }
            if !self.end_line()
                && let Some(last) = line.last_mut()
            {
                *last = SPOILED;
                self.part = Part::Nonsense;
            }
            rest = following;
        }
    }

    fn extend(&mut self, piece: &[u8]) {
        self.is_line_empty &= piece.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        let room = LINE_BYTES - self.line.len();
        self.line.extend(piece.iter().take(room));
    }

    /// Takes in the line that has ended; false if it ends a head that must be refused.
    fn end_line(&mut self) -> bool {
        let is_empty = std::mem::replace(&mut self.is_line_empty, true);
        let line = std::mem::take(&mut self.line);
        match self.part {
            Part::Head if !is_empty && self.head.has_begun => self.header(&line),
            Part::Head if !is_empty => self.head.has_begun = true,
            // Empty lines before a request mean nothing (RFC 9112 §2.2).
            Part::Head if !self.head.has_begun => {}
            Part::Head => {
                let head = std::mem::take(&mut self.head);
                self.part = match (head.is_chunked, head.length) {
                    (true, Some(_)) => return false,
                    (true, None) => Part::ChunkSize,
                    (false, length) => data(length.unwrap_or(0), After::Head),
                };
            }
            Part::ChunkSize => {
                self.part = match chunk_size(&line) {
                    Some(0) => Part::Trailer,
                    Some(size) => data(size, After::ChunkEnd),
                    None => Part::Nonsense,
                }
            }
            Part::ChunkEnd => self.part = Part::ChunkSize,
            Part::Trailer if is_empty => self.part = Part::Head,
            Part::Trailer | Part::Data { .. } | Part::Nonsense => {}
        }
        self.line = line;
        self.line.clear();
        true
    }

    fn header(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return;
        };
        let (name, value) = line.split_at(colon);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.head.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = value.get(1..).unwrap_or_default().trim_ascii();
            // What is no number is refused by hyper.
            let length = std::str::from_utf8(digits)
                .ok()
                .and_then(|text| text.parse().ok());
            self.head.length = Some(length.unwrap_or(0));
        }
    }
}

fn data(left: u64, then: After) -> Part {
    match (left, then) {
        (0, After::Head) => Part::Head,
        _ => Part::Data { left, then },
    }
}

/// The size in front of a chunk, without its extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A connection whose requests are watched.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    framing: Framing,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            framing: Framing::default(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        if let Some(new) = buffer.filled_mut().get_mut(before..) {
            this.framing.read(new);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Where the first spoiled byte is, when the bytes arrive in pieces of this size.
    fn spoiled(text: &str, piece: usize) -> Option<usize> {
        let mut bytes = text.as_bytes().to_vec();
        let mut framing = Framing::default();
        for piece in bytes.chunks_mut(piece) {
            framing.read(piece);
        }
        let position = bytes.iter().position(|byte| *byte == SPOILED);
        assert_eq!(
            bytes.iter().zip(text.bytes()).filter(|(a, b)| **a != *b).count(),
            usize::from(position.is_some())
        );
        position
    }

    fn assert_spoiled(text: &str, end: &str) {
        let expected = text.find(end).map(|start| start + end.len() - 1);
        for piece in 1..=text.len() {
            assert_eq!(spoiled(text, piece), expected, "{text:?} in pieces of {piece}");
        }
    }

    const BOTH: [&str; 4] = [
        "POST /a HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /a HTTP/1.1\r\nTRANSFER-ENCODING: chunked\r\ncontent-length:0\r\n\r\n",
        "\r\n\r\nPOST /a HTTP/1.1\nTransfer-Encoding: gzip, chunked\nA: b\nContent-Length: x\n\n",
        "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nX: y\r\nContent-Length: 99\r\n\n",
    ];

    #[test]
    fn a_head_with_both_lengths_is_spoiled() {
        for head in BOTH {
            let bare = head.trim_end();
            let end = &head[bare.len()..];
            let text = format!("{head}0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
            let position = bare.len() + end.len() - 1;
            for piece in 1..=text.len() {
                assert_eq!(spoiled(&text, piece), Some(position), "{text:?}");
            }
        }
    }

    #[test]
    fn bodies_are_not_mistaken_for_heads() {
        let head = BOTH[0];
        let length = head.len();
        for text in [
            format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{head}GET / HTTP/1.1\r\n\r\n"),
            format!(
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{length:X};a=b\r\n{head}\r\n0\r\nA: b\r\n\r\n"
            ),
            format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{head}"),
            "GET / HTTP/1.1\r\nX-Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        ] {
            assert_spoiled(&text, "never");
        }
    }

    #[test]
    fn a_second_request_is_watched_as_well() {
        for first in [
            "GET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\nT: x\r\n\r\n",
        ] {
            let text = format!("{first}{}", BOTH[0]);
            for piece in 1..=text.len() {
                assert_eq!(spoiled(&text, piece), Some(text.len() - 1), "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_changed_or_lost_when_bytes_are_random(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1..300_usize) {
            let mut seen = bytes.clone();
            let mut framing = Framing::default();
            for piece in seen.chunks_mut(piece) {
                framing.read(piece);
                prop_assert!(framing.line.len() <= LINE_BYTES);
            }
            prop_assert!(seen.iter().zip(&bytes).filter(|(a, b)| a != b).count() <= 1);
        }
    }
}
