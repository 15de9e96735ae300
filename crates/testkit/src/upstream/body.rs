//! Reads the body of a request strictly by its framing (RFC 9112 §6.3).

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use super::{End, Seen};

/// The part of a body that has not been read yet.
pub(super) enum Body {
    /// This number of bytes.
    Length(u64),
    /// Chunks up to the last one.
    Chunked,
}

impl Body {
    /// Determines the body's framing from the head. An ambiguous head is an error: a proxy must
    /// not pass it on.
    pub(super) fn of(seen: &Seen) -> io::Result<Self> {
        let lengths = seen.headers("content-length");
        let codings = seen.headers("transfer-encoding");
        match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Ok(Self::Length(0)),
            ([length], []) => length.parse().map(Self::Length).map_err(io::Error::other),
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Self::Chunked),
            _ => Err(io::Error::other(format!("ambiguous framing: {:?}", seen.head))),
        }
    }

    /// Reads until the end of the body or until `enough` bytes have arrived.
    pub(super) async fn read(
        &mut self,
        stream: &mut (impl AsyncBufRead + Unpin),
        seen: &Seen,
        enough: u64,
    ) -> io::Result<()> {
        match self {
            Self::Length(left) => {
                while *left > 0 && seen.body_bytes() < enough {
                    *left -= take(stream, seen, *left).await?;
                }
                if *left == 0 {
                    seen.finish(End::Complete);
                }
                Ok(())
            }
            Self::Chunked => chunks(stream, seen, enough).await.map(|is_whole| {
                if is_whole {
                    *self = Self::Length(0);
                    seen.finish(End::Complete);
                }
            }),
        }
    }
}

/// Reads whole chunks until there are `enough` bytes. Returns whether the last chunk was among
/// them.
async fn chunks(
    stream: &mut (impl AsyncBufRead + Unpin),
    seen: &Seen,
    enough: u64,
) -> io::Result<bool> {
    while seen.body_bytes() < enough {
        let size = line(stream).await?;
        let mut left = u64::from_str_radix(&size, 16).map_err(io::Error::other)?;
        if left == 0 {
            while !line(stream).await?.is_empty() {}
            return Ok(true);
        }
        while left > 0 {
            left -= take(stream, seen, left).await?;
        }
        if !line(stream).await?.is_empty() {
            return Err(io::Error::other("a chunk is longer than it says"));
        }
    }
    Ok(false)
}

/// Takes up to `most` of the bytes that have arrived.
async fn take(stream: &mut (impl AsyncBufRead + Unpin), seen: &Seen, most: u64) -> io::Result<u64> {
    let arrived = stream.fill_buf().await?;
    if arrived.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(arrived.len());
    seen.take(&arrived[..length]);
    stream.consume(length);
    Ok(length as u64)
}

/// Reads a line and returns it without its end.
async fn line(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = Vec::new();
    (&mut *stream).take(4096).read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
