//! A TLS connection as a byte stream, with larger reads and writes than rustls itself makes.
//!
//! rustls reads 4 KiB at a time and returns data in records of 16 KiB. Below rustls,
//! [`LargeReads`] reads up to 128 KiB from the socket with one call. Above rustls, a reader
//! receives the data of all records that have arrived.

mod large_reads;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, CommonState, ServerConfig};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use self::large_reads::LargeReads;

/// Maximum number of bytes that one read returns from a slow peer. hyper doubles its buffer
/// whenever a read fills it, and keeps that size. 200 slow uploads held 0.29 MiB each in the proxy
/// without this limit, and 0.10 MiB with it.
const SMALL_READ_BYTES: usize = (16 << 10) - 1;

/// Maximum number of encrypted bytes that are queued for the socket and written with one call. A
/// GiB through the proxy took 0.37 s of CPU time with 256 KiB, 0.39 s with this limit, and 0.41 s
/// with the 64 KiB of rustls.
const MAX_WRITE_BYTES: usize = 128 << 10;

/// A TLS connection whose handshake is complete.
pub struct Stream<S> {
    tls: TlsStream<LargeReads<S>>,
    /// The error that ended reading. All further reads return it, because rustls would return data
    /// received before the error.
    failure: Option<(io::ErrorKind, String)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    /// Accepts a client's handshake.
    pub async fn accept(io: S, config: Arc<ServerConfig>) -> io::Result<Self> {
        let tls = TlsAcceptor::from(config).accept(LargeReads::new(io)).await?;
        Ok(Self::new(tls.into()))
    }

    /// Connects to the server called `name`.
    pub async fn connect(
        io: S,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let connecting = TlsConnector::from(config).connect(name, LargeReads::new(io));
        Ok(Self::new(connecting.await?.into()))
    }

    fn new(mut tls: TlsStream<LargeReads<S>>) -> Self {
        match &mut tls {
            TlsStream::Client(stream) => stream.get_mut().1.set_buffer_limit(Some(MAX_WRITE_BYTES)),
            TlsStream::Server(stream) => stream.get_mut().1.set_buffer_limit(Some(MAX_WRITE_BYTES)),
        }
        Self { tls, failure: None }
    }
}

impl<S> Stream<S> {
    /// Returns the connection below TLS.
    pub fn get_mut(&mut self) -> &mut S {
        self.tls.get_mut().0.get_mut()
    }

    /// Returns the protocol that was negotiated with ALPN (RFC 7301).
    pub fn alpn_protocol(&self) -> Option<&[u8]> {
        self.connection_state().alpn_protocol()
    }

    /// Returns the peer's certificate, if it presented one.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.connection_state().peer_certificates().and_then(<[_]>::first)
    }

    fn connection_state(&self) -> &CommonState {
        self.tls.get_ref().1
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some((kind, message)) = &this.failure {
            return Poll::Ready(Err(io::Error::new(*kind, message.clone())));
        }
        let mut read = 0;
        while buffer.remaining() > 0 {
            let is_bulk = this.tls.get_ref().0.is_bulk();
            let most = if is_bulk { usize::MAX } else { SMALL_READ_BYTES.saturating_sub(read) };
            // Reading stops here because another system call would usually find no data.
            if most == 0 || (read > 0 && this.tls.get_ref().0.is_empty()) {
                break;
            }
            let length = match Pin::new(&mut this.tls).poll_fill_buf(cx) {
                Poll::Ready(Ok(data)) => {
                    let length = data.len().min(buffer.remaining()).min(most);
                    buffer.put_slice(&data[..length]);
                    length
                }
                Poll::Ready(Err(error)) => {
                    this.failure = Some((error.kind(), error.to_string()));
                    if read == 0 {
                        return Poll::Ready(Err(error));
                    }
                    0
                }
                Poll::Pending if read > 0 => 0,
                Poll::Pending => return Poll::Pending,
            };
            if length == 0 {
                break;
            }
            Pin::new(&mut this.tls).consume(length);
            read += length;
        }
        Poll::Ready(Ok(()))
    }
}

crate::delegate::delegate_writes!(Stream, tls, AsyncRead + AsyncWrite);
