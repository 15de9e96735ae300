//! Accepts TLS handshakes with little memory per client.
//!
//! rustls buffers up to 64 KiB of an incomplete handshake message, plus 48 bytes for each of its
//! fragments, which may be a single byte long. It also allocates 4 KiB before it checks whether
//! there is anything to read. This module therefore reads the ClientHello itself, starts rustls
//! only when it is complete, and then passes on whole records.

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

/// Maximum size of a ClientHello in bytes. Measured: 0.3 KB with OpenSSL, Go and rustls, 0.5 KB
/// with curl, 2.0 KB with Chromium and its post-quantum key share (1.2 KB). A resumed session adds
/// some hundred bytes.
const HELLO_BYTES: usize = 4 << 10;

/// Maximum number of bytes that a client may send before its handshake is complete. This is enough
/// for a ClientHello, a second one after a wrong guess of the key share, and a chain of three
/// certificates with 4096-bit keys (5 KB).
const HANDSHAKE_BYTES: usize = 12 << 10;

/// Length of the type, version and length fields of a record (RFC 8446 §5.1).
const RECORD_HEADER: usize = 5;

/// Length of the type and length fields of a handshake message (RFC 8446 §4).
const MESSAGE_HEADER: usize = 4;

/// Content type of records with handshake messages, and the handshake type of a ClientHello.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// Maximum number of records in a handshake. Our clients send fewer than ten, and each record
/// costs two system calls.
const MAX_RECORDS: usize = 32;

/// The response to a client that speaks HTTP without TLS.
const PLAIN_HTTP_REPLY: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 42\r\n\
    Connection: close\r\n\r\nthis port speaks HTTPS only: use https://\n";

/// Number of bytes that a client without TLS may still send before it has read the response.
/// Closing the connection earlier would reset it.
const PLAIN_HTTP_BYTES: u64 = 1 << 20;

/// Maximum number of bytes per read.
const PIECE_BYTES: usize = 1024;

/// Waits until a client has sent its first byte.
pub(super) async fn first_byte(stream: &TcpStream) -> io::Result<()> {
    stream.peek(&mut [0]).await.map(drop)
}

/// Completes the handshake of `stream` with the current value of `config`.
pub(super) async fn accept_tls<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: &watch::Receiver<Arc<ServerConfig>>,
) -> io::Result<tls::Stream<HelloReader<S>>> {
    let mut wire = HelloReader::new(stream);
    let hello = poll_fn(|cx| wire.poll_hello(cx)).await;
    if hello.is_err() && wire.begins_like_http() {
        wire.answer_plain_http().await.ok();
        return Err(rejected("it speaks plain HTTP"));
    }
    hello?;
    let config = Arc::clone(&config.borrow());
    // Boxed: this future is large but short-lived.
    let mut stream = Box::pin(tls::Stream::accept(wire, config)).await?;
    stream.get_mut().is_over = true;
    Ok(stream)
}

/// Wraps the connection below TLS. During the handshake it passes on only whole records and limits
/// the total number of bytes, because rustls buffers an incomplete record in full.
#[derive(Debug)]
pub(super) struct HelloReader<S> {
    stream: S,
    /// True once the handshake is complete. Reads then go directly to the stream.
    is_over: bool,
    /// Number of bytes, and number of complete records, received during the handshake.
    received: usize,
    records: usize,
    /// Complete records that were not passed on yet, followed by the beginning of an incomplete
    /// one.
    waiting: Vec<u8>,
    /// Number of bytes in `waiting` that were already passed on.
    given: usize,
    /// True if all complete records were passed on and rustls has not processed them yet.
    is_given: bool,
}

/// Returns the error for a handshake that is rejected early.
fn rejected(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

fn no_hello_error() -> io::Error {
    rejected("it is not a ClientHello")
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

    /// Copies the waiting bytes to `buffer`, as many as fit.
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
    /// Reads until the record at offset `start` of the waiting bytes is complete. The handshake
    /// must not be longer than `most` bytes by then.
    fn poll_record(
        &mut self,
        cx: &mut Context<'_>,
        start: usize,
        most: usize,
    ) -> Poll<io::Result<()>> {
        loop {
            let missing = missing_bytes(self.waiting.get(start..).unwrap_or_default());
            if missing == 0 {
                self.records += 1;
                return Poll::Ready(if self.records > MAX_RECORDS {
                    Err(rejected(format!("it arrived in more than {MAX_RECORDS} pieces")))
                } else {
                    Ok(())
                });
            }
            // Checked before a whole record has arrived: a short request in plain HTTP is much
            // shorter than the record length that its bytes seem to announce.
            if self.records == 0 && self.waiting.first().is_some_and(|kind| *kind != HANDSHAKE) {
                return Poll::Ready(Err(no_hello_error()));
            }
            // Reads only the missing bytes of the record. TLS reads the following bytes itself, so
            // those bytes are not buffered twice.
            let received = self.received;
            let room = most.saturating_sub(received).min(missing).min(PIECE_BYTES);
            if room == 0 {
                return Poll::Ready(Err(rejected(format!(
                    "{received} bytes were received, the limit is {most}"
                ))));
            }
            let mut piece = [0; PIECE_BYTES];
            let mut piece = ReadBuf::new(piece.get_mut(..room).unwrap_or_default());
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "EOF")));
            }
            self.received += piece.filled().len();
            // Reserves the exact size: a vector that doubles its capacity could take twice the
            // limit, for thousands of clients.
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
        // tokio-rustls reads as long as there is data, and checks only then whether the handshake
        // is complete. A client may send its first data together with the end of the handshake, in
        // a record that is larger than the limit of the handshake. Returning `Pending` once makes
        // tokio-rustls check first.
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
    /// True if the client began with an HTTP method instead of a ClientHello.
    fn begins_like_http(&self) -> bool {
        self.waiting.first().is_some_and(u8::is_ascii_uppercase)
    }

    /// Tells a client without TLS to use HTTPS, and discards the rest of its request.
    async fn answer_plain_http(&mut self) -> io::Result<()> {
        self.stream.write_all(PLAIN_HTTP_REPLY).await?;
        self.stream.shutdown().await?;
        let mut rest = (&mut self.stream).take(PLAIN_HTTP_BYTES);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await.map(drop)
    }
}

/// Returns the length of a record including its header, or the length of the header while the rest
/// is unknown.
fn record_length(record: &[u8]) -> usize {
    match record.get(..RECORD_HEADER) {
        Some([.., high, low]) => RECORD_HEADER + usize::from(u16::from_be_bytes([*high, *low])),
        _ => RECORD_HEADER,
    }
}

/// Returns the number of bytes that are missing at the end of a record.
fn missing_bytes(record: &[u8]) -> usize {
    record_length(record).saturating_sub(record.len())
}

/// Finds the first record of a ClientHello that is missing or incomplete. `bytes` are the first
/// bytes from a client. Returns the offset of that record, or `None` if the ClientHello is
/// complete.
fn find_unfinished_record(bytes: &[u8]) -> io::Result<Option<usize>> {
    let (mut header, mut length, mut at) = ([0; MESSAGE_HEADER], 0, 0);
    loop {
        let record = bytes.get(at..).unwrap_or_default();
        if record.first().is_some_and(|kind| *kind != HANDSHAKE) {
            return Err(no_hello_error());
        }
        if missing_bytes(record) > 0 {
            return Ok(Some(at));
        }
        let payload = record.get(RECORD_HEADER..record_length(record)).unwrap_or_default();
        // A message may be split between records at any position, even within its header.
        for (place, byte) in header.iter_mut().skip(length).zip(payload) {
            *place = *byte;
        }
        length += payload.len();
        at += record_length(record);
        let [kind, message @ ..] = header;
        if length >= MESSAGE_HEADER && kind != CLIENT_HELLO {
            return Err(no_hello_error());
        }
        let [high, middle, low] = message.map(usize::from);
        if length >= MESSAGE_HEADER && length - MESSAGE_HEADER >= (high << 16 | middle << 8 | low) {
            return Ok(None);
        }
    }
}

crate::delegate::delegate_writes!(HelloReader, stream, AsyncWrite);
