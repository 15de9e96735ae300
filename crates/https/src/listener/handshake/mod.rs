//! TLS handshakes that hold little.
//!
//! rustls keeps up to 64 KiB of a handshake message until its end has come, and 48 bytes more for each of its pieces, of which one
//! byte may be enough; and it takes 4 KiB before it looks whether there is anything to read. So it is asked only when there is
//! a whole ClientHello, and then gets whole records.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::tls;

/// Bytes of a ClientHello at most. Measured: OpenSSL, Go and rustls 0.3 KB, curl 0.5 KB, Chromium 2.0 KB with its post-quantum share
/// (1.2 KB); sessions that are resumed add some hundred bytes.
const HELLO_BYTES: usize = 4 << 10;

/// Bytes that a client may send until its handshake is complete: with a ClientHello, and another one for a share that it did not
/// guess, room for a chain of three certificates with keys of 4096 bits (5 KB).
const HANDSHAKE_BYTES: usize = 12 << 10;

/// Type, version and length in front of a record (RFC 8446 §5.1).
const RECORD_HEADER: usize = 5;

/// Type and length in front of a handshake message (RFC 8446 §4).
const MESSAGE_HEADER: usize = 4;

/// The type of records with handshake messages, and that of a ClientHello among these.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// Records of a handshake at most: those of our clients have less than ten, and each costs two calls of the system.
const MAX_RECORDS: usize = 32;

/// The answer to a client that speaks HTTP without TLS.
const PLAIN_HTTP_REPLY: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 42\r\n\
    Connection: close\r\n\r\nthis port speaks HTTPS only: use https://\n";

/// Bytes that such a client may still send until it has read its answer: closing the connection before would reset it.
const PLAIN_HTTP_BYTES: u64 = 1 << 20;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1024;

/// Waits for the first byte of a client.
pub(super) async fn first_byte(stream: &TcpStream) -> io::Result<()> {
    stream.peek(&mut [0]).await.map(drop)
}

/// Completes the handshake of `stream` with the newest `config`.
pub(super) async fn accept_tls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: &watch::Receiver<Arc<ServerConfig>>,
) -> io::Result<tls::Stream<HelloReader<S>>> {
    let mut wire = HelloReader::new(stream);
    let hello = poll_fn(|cx| wire.poll_hello(cx)).await;
    if hello.is_err() && wire.begins_like_http() {
        wire.answer_plain_http().await.ok();
        return Err(HandshakeError::PlainHttp.into());
    }
    hello?;
    let config = Arc::clone(&config.borrow());
    // In a box: it is needed for a moment, and large.
    let mut stream = Box::pin(tls::Stream::accept(wire, config)).await?;
    stream.get_mut().is_over = true;
    Ok(stream)
}

/// The connection below TLS. During the handshake it gives out whole records, and not many bytes in all: a record that is not whole
/// takes as much memory as it has bytes.
#[derive(Debug)]
pub(super) struct HelloReader<S> {
    stream: S,
    /// The handshake is complete: nothing is looked at any more.
    is_over: bool,
    /// Bytes and whole records of the handshake so far.
    received: usize,
    records: usize,
    /// Whole records that were not given out, and a part of one.
    waiting: Vec<u8>,
    /// The number of these that was given out.
    given: usize,
    /// Whole records were given out, and it was not seen yet what came of them.
    is_given: bool,
}

/// The reasons for which a client is not waited for.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("{received} bytes have come, and more than {most} are not waited for")]
    Bytes { received: usize, most: usize },
    #[error("it has come in more than {MAX_RECORDS} pieces")]
    Records,
    #[error("it is no ClientHello")]
    NoHello,
    #[error("it speaks plain HTTP")]
    PlainHttp,
}

impl From<HandshakeError> for io::Error {
    fn from(error: HandshakeError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

impl<S> HelloReader<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            is_over: false,
            received: 0,
            records: 0,
            waiting: Vec::new(),
            given: 0,
            is_given: false,
        }
    }

    /// Gives out what waits, as far as there is room.
    fn copy_waiting(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = self.waiting.get(self.given..).unwrap_or_default();
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(rest.get(..length).unwrap_or_default());
        self.given += length;
        if self.given == self.waiting.len() {
            self.waiting = Vec::new();
            self.given = 0;
            self.is_given = true;
        }
    }
}

impl<S: AsyncRead + Unpin> HelloReader<S> {
    /// Reads until the record that begins at `start` of what waits is whole; the handshake may have `most` bytes until then.
    fn poll_record(&mut self, cx: &mut Context<'_>, start: usize, most: usize) -> Poll<io::Result<()>> {
        loop {
            let missing = missing_bytes(self.waiting.get(start..).unwrap_or_default());
            if missing == 0 {
                self.records += 1;
                return Poll::Ready(if self.records > MAX_RECORDS {
                    Err(HandshakeError::Records.into())
                } else {
                    Ok(())
                });
            }
            // Not when a record of the length that it seems to have is there: a short request for plain HTTP is much shorter.
            if self.records == 0 && self.waiting.first().is_some_and(|kind| *kind != HANDSHAKE) {
                return Poll::Ready(Err(HandshakeError::NoHello.into()));
            }
            // No byte more than the record has: what follows it is TLS' own to read, and is not kept twice.
            let received = self.received;
            let room = most.saturating_sub(received).min(missing).min(PIECE_BYTES);
            if room == 0 {
                return Poll::Ready(Err(HandshakeError::Bytes { received, most }.into()));
            }
            let mut piece = [0; PIECE_BYTES];
            let mut piece = ReadBuf::new(piece.get_mut(..room).unwrap_or_default());
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "EOF")));
            }
            self.received += piece.filled().len();
            self.waiting.reserve_exact(piece.filled().len());
            self.waiting.extend_from_slice(piece.filled());
        }
    }

    /// Reads the records of a ClientHello.
    fn poll_hello(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(last) = find_unfinished_record(&self.waiting)? {
            ready!(self.poll_record(cx, last, HELLO_BYTES))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HelloReader<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_over && this.waiting.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        // tokio-rustls reads on while there is something to read, and looks only then whether the handshake is complete. A client may
        // send its first data along with the end of the handshake, in a record that is larger than all of that may be.
        if std::mem::take(&mut this.is_given) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if this.given == 0 && missing_bytes(&this.waiting) > 0 {
            ready!(this.poll_record(cx, 0, HANDSHAKE_BYTES))?;
        }
        this.copy_waiting(buffer);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> HelloReader<S> {
    /// True if a method of HTTP comes where a ClientHello should.
    fn begins_like_http(&self) -> bool {
        self.waiting.first().is_some_and(u8::is_ascii_uppercase)
    }

    /// Says that TLS is wanted here.
    async fn answer_plain_http(&mut self) -> io::Result<()> {
        self.stream.write_all(PLAIN_HTTP_REPLY).await?;
        self.stream.shutdown().await?;
        let mut rest = (&mut self.stream).take(PLAIN_HTTP_BYTES);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(drop)
    }
}

/// The length of a record with its header, or of the header until that is known.
fn record_length(record: &[u8]) -> usize {
    match record.get(..RECORD_HEADER) {
        Some([.., high, low]) => RECORD_HEADER + usize::from(u16::from_be_bytes([*high, *low])),
        _ => RECORD_HEADER,
    }
}

/// Bytes that are missing of a record.
fn missing_bytes(record: &[u8]) -> usize {
    record_length(record).saturating_sub(record.len())
}

/// The place in `bytes`, the first of a client, of the record that is missing to a whole ClientHello, or of which a part is; `None`
/// if it is whole.
fn find_unfinished_record(bytes: &[u8]) -> Result<Option<usize>, HandshakeError> {
    let (mut header, mut length, mut at) = ([0; MESSAGE_HEADER], 0, 0);
    loop {
        let record = bytes.get(at..).unwrap_or_default();
        if record.first().is_some_and(|kind| *kind != HANDSHAKE) {
            return Err(HandshakeError::NoHello);
        }
        if missing_bytes(record) > 0 {
            return Ok(Some(at));
        }
        let payload = record.get(RECORD_HEADER..record_length(record)).unwrap_or_default();
        // A message may be cut into records anywhere, its header too.
        for (place, byte) in header.iter_mut().skip(length).zip(payload) {
            *place = *byte;
        }
        length += payload.len();
        at += record_length(record);
        let [kind, message @ ..] = header;
        if length >= MESSAGE_HEADER && kind != CLIENT_HELLO {
            return Err(HandshakeError::NoHello);
        }
        let [high, middle, low] = message.map(usize::from);
        if length >= MESSAGE_HEADER && length - MESSAGE_HEADER >= (high << 16 | middle << 8 | low) {
            return Ok(None);
        }
    }
}

crate::delegate::delegate_writes!(HelloReader, stream, AsyncWrite);
