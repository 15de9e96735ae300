//! A TLS connection as a stream of bytes: rustls shakes hands and keeps the secrets, records are read, opened and sealed here.
//!
//! rustls' own connection reads 4 KiB at a time, gives data out by records of 16 KiB, and copies each byte twice on its way in. Here
//! up to 256 KiB are read at once, records are opened where they lie, and a byte is copied once, to who reads; on its way out once,
//! into the record that it is sealed in. Several records leave with one call of the system.

mod handshake;
mod incoming;
mod outgoing;
mod posted;
mod records;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::crypto::cipher::OutboundChunks;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ContentType, Error, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::handshake::{Facts, Shaken, invalid};
use self::incoming::Incoming;
use self::outgoing::Outgoing;
use self::posted::{Posted, alert_of};
use self::records::{DATA_BYTES, Kernel, Opener, Sealer};
use super::ALPN_HTTP2;

/// Slices of one write that are looked at.
const MAX_SLICES: usize = 16;

/// A connection whose handshake is complete.
pub struct Stream<S> {
    io: S,
    facts: Facts,
    kernel: Kernel,
    opener: Opener,
    sealer: Sealer,
    /// Data that came along with the handshake.
    first: Vec<u8>,
    incoming: Incoming,
    outgoing: Outgoing,
    posted: Posted,
    /// The peer has said that nothing more comes.
    is_ended: bool,
    /// We have said so.
    is_closed: bool,
    is_broken: bool,
    /// The reason, until it was told.
    failure: Option<Error>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    /// Shakes hands with a client.
    pub async fn accept(mut io: S, config: &ServerConfig) -> io::Result<Self> {
        let side = handshake::server(config).map_err(invalid)?;
        let shaken = handshake::shake(&mut io, side).await?;
        Self::new(io, shaken)
    }

    /// Shakes hands with the server of this `name`.
    pub async fn connect(mut io: S, config: &ClientConfig, name: ServerName<'static>) -> io::Result<Self> {
        let side = handshake::client(config, name).map_err(invalid)?;
        let shaken = handshake::shake(&mut io, side).await?;
        Self::new(io, shaken)
    }

    fn new(io: S, shaken: Shaken) -> io::Result<Self> {
        let (opener, sealer) = records::both(shaken.secrets, &shaken.kernel).map_err(invalid)?;
        // In HTTP/2 the peer waits for us as well, once for each window: uploads took half as long again with pauses.
        let is_http2 = shaken.facts.protocol.as_deref() == Some(ALPN_HTTP2);
        Ok(Self {
            io,
            facts: shaken.facts,
            kernel: shaken.kernel,
            opener,
            sealer,
            first: shaken.data,
            incoming: Incoming::new(shaken.rest, !is_http2),
            outgoing: Outgoing::default(),
            posted: Posted::default(),
            is_ended: shaken.is_ended,
            is_closed: false,
            is_broken: false,
            failure: None,
        })
    }
}

impl<S> Stream<S> {
    /// The connection below.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.io
    }

    /// The protocol above TLS that was agreed on (RFC 7301).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.facts.protocol.as_deref()
    }

    /// The certificate that the peer has shown.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.facts.certificate.as_ref()
    }

    /// Opens what has come until there is data; false if more has to come.
    fn open(&mut self) -> Result<bool, Error> {
        while !self.incoming.has_data() && !self.is_ended {
            let Some((kind, content)) = self.incoming.open(&mut self.opener)? else {
                return Ok(false);
            };
            match kind {
                ContentType::ApplicationData => self.posted.data(),
                ContentType::Alert => self.is_ended = self.posted.alert(content, &self.kernel)?,
                ContentType::Handshake => {
                    self.posted
                        .handshake(content, &mut self.kernel, &mut self.opener)?;
                }
                _ => return Err(records::unexpected("a record of a type that is not known")),
            }
        }
        Ok(true)
    }

    /// Seals what was asked for, and a new key when the old one has done its work.
    fn prepare(&mut self) -> Result<(), Error> {
        if self.sealer.is_worn() && !self.kernel.is_new() {
            return Err(Error::EncryptError);
        }
        if std::mem::take(&mut self.posted.is_update_wanted) || self.sealer.is_worn() {
            self.outgoing.push(self.sealer.update(&mut self.kernel)?);
        }
        if let Some(refusal) = self.posted.refusal.take() {
            self.outgoing.push(self.sealer.alert(WARNING, refusal)?);
        }
        Ok(())
    }

    /// Seals as much of `chunks` as may wait. The number of bytes.
    fn seal(&mut self, chunks: &OutboundChunks<'_>) -> Result<usize, Error> {
        let (mut sealed, total) = (0, chunks.len());
        while sealed < total && !self.outgoing.is_full() {
            self.prepare()?;
            let (_, left) = chunks.split_at(sealed);
            let (now, _) = left.split_at(DATA_BYTES);
            sealed += now.len();
            self.outgoing
                .push(self.sealer.seal(ContentType::ApplicationData, now)?);
        }
        Ok(sealed)
    }
}

/// Levels of alerts (RFC 5246 §7.2).
const WARNING: u8 = 1;
const FATAL: u8 = 2;

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if !this.first.is_empty() {
            let length = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..length]);
            this.first.drain(..length);
        }
        while buffer.remaining() > 0 && !this.is_broken {
            let given = buffer.filled().len() - before;
            let left = this.incoming.most().saturating_sub(given);
            if left == 0 {
                break;
            }
            let has_data = match this.open() {
                Ok(has_data) => has_data,
                Err(error) => {
                    this.fail(error, cx);
                    break;
                }
            };
            if has_data && !this.is_ended {
                this.incoming.give(buffer, left);
            } else if this.is_ended || given > 0 {
                break;
            } else if ready!(this.incoming.poll_fill(&mut this.io, cx))? == 0 {
                this.is_broken = true;
                let message = "peer closed connection without sending TLS close_notify";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, message)));
            }
        }
        this.incoming.tidy();
        // What came before it is data, and given first.
        if this.is_broken && buffer.filled().len() == before && buffer.remaining() > 0 {
            let failure = this.failure.take();
            return Poll::Ready(Err(
                failure.map_or(io::ErrorKind::ConnectionAborted.into(), invalid)
            ));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    /// Gives the connection up, and tells the peer why.
    fn fail(&mut self, error: Error, cx: &mut Context<'_>) {
        self.is_broken = true;
        if let Some(alert) = alert_of(&error)
            && !self.is_closed
            && let Ok(record) = self.sealer.alert(FATAL, alert)
        {
            self.outgoing.push(record);
            self.is_closed = true;
        }
        // As far as the peer takes it.
        if let Poll::Ready(Err(lost)) = self.outgoing.poll_send(&mut self.io, cx) {
            tracing::debug!("the peer is not told why it is given up: {lost}");
        }
        self.failure = Some(error);
    }

    fn poll_seal(&mut self, cx: &mut Context<'_>, chunks: &OutboundChunks<'_>) -> Poll<io::Result<usize>> {
        if self.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.outgoing.is_full() {
            ready!(self.outgoing.poll_send(&mut self.io, cx))?;
        }
        let sealed = self.seal(chunks).map_err(invalid)?;
        // What does not leave now leaves when it is flushed, or before more is taken.
        if let Poll::Ready(Err(error)) = self.outgoing.poll_send(&mut self.io, cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(sealed))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_seal(cx, &OutboundChunks::Single(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut chunks = [&[][..]; MAX_SLICES];
        for (chunk, slice) in chunks.iter_mut().zip(slices) {
            *chunk = slice;
        }
        let chunks = chunks.get(..slices.len().min(MAX_SLICES)).unwrap_or_default();
        self.get_mut().poll_seal(cx, &OutboundChunks::new(chunks))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_closed {
            this.prepare().map_err(invalid)?;
        }
        ready!(this.outgoing.poll_send(&mut this.io, cx))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_closed {
            let goodbye = this.sealer.alert(WARNING, AlertDescription::CloseNotify);
            this.outgoing.push(goodbye.map_err(invalid)?);
            this.is_closed = true;
        }
        ready!(this.outgoing.poll_send(&mut this.io, cx))?;
        Pin::new(&mut this.io).poll_shutdown(cx)
    }
}
