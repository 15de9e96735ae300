//! The other end of a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Pieces;

/// A peer that sends its bytes in pieces and then closes the connection. It ignores everything it
/// receives.
pub struct Script {
    pieces: Pieces,
    /// The rest of a piece that was too large for the reader.
    left: Bytes,
}

impl Script {
    /// Makes a peer that sends these pieces.
    pub fn new(pieces: Pieces) -> Self {
        Self { pieces, left: Bytes::new() }
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left.is_empty() {
            self.left = self.pieces.next().unwrap_or_default();
        }
        let length = self.left.len().min(buffer.remaining());
        buffer.put_slice(&self.left.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
