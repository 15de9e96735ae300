//! A TLS connection as a stream of bytes: rustls shakes hands and keeps the secrets, records are read, opened and sealed here.
//!
//! rustls' own connection reads 4 KiB at a time, gives data out by records of 16 KiB, and copies each byte twice on its way in. Here
//! up to 256 KiB are read at once, records are opened into the memory of who reads, and sealed from that of who writes: a byte is copied
//! by nothing but the cipher. Several records leave with one call of the system.

mod cipher;
mod handshake;
mod incoming;
mod outgoing;
mod posted;
mod records;
mod rooms;
#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, ContentType, Error, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::handshake::{Facts, Shaken, invalid};
use self::incoming::Incoming;
use self::outgoing::Outgoing;
use self::posted::{Posted, alert_of};
use self::records::{Kernel, Opener, Sealer};

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
        Ok(Self {
            io,
            facts: shaken.facts,
            kernel: shaken.kernel,
            opener,
            sealer,
            first: shaken.data,
            incoming: Incoming::new(shaken.rest),
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

    /// Opens what has come, into `buffer` up to its `end`, until there is data that does not fit there; false if there is none.
    fn open(&mut self, buffer: &mut ReadBuf<'_>, end: usize) -> Result<bool, Error> {
        while !self.incoming.has_data() && !self.is_ended && buffer.filled().len() < end {
            let Some((kind, content)) = self.incoming.open(&mut self.opener, buffer, end)? else {
                return Ok(false);
            };
            match kind {
                ContentType::ApplicationData => self.posted.data(),
                ContentType::Alert => self.is_ended = self.posted.alert(content, &self.kernel)?,
                ContentType::Handshake => {
                    self.posted
                        .handshake(content, &mut self.kernel, &mut self.opener)?;
                }
                _ => return Err(cipher::unexpected("a record of a type that is not known")),
            }
        }
        Ok(self.incoming.has_data())
    }

    /// Seals what was asked for, and a new key when the old one has done its work.
    fn prepare(&mut self) -> Result<(), Error> {
        if self.sealer.is_worn() && !self.kernel.is_new() {
            return Err(Error::EncryptError);
        }
        if self.posted.is_update_wanted || self.sealer.is_worn() {
            self.posted.is_update_wanted = false;
            self.outgoing
                .push(|room| self.sealer.update(&mut self.kernel, room))?;
        }
        if let Some(refusal) = self.posted.refusal.take() {
            self.say(WARNING, refusal)?;
        }
        Ok(())
    }

    /// Seals an alert.
    fn say(&mut self, level: u8, alert: AlertDescription) -> Result<(), Error> {
        self.outgoing.push(|room| self.sealer.alert(level, alert, room))?;
        Ok(())
    }

    /// Seals as much of `pieces` as may wait. The number of bytes.
    fn seal(&mut self, mut pieces: &mut [IoSlice<'_>]) -> Result<usize, Error> {
        let mut sealed = 0;
        while pieces.iter().any(|piece| !piece.is_empty()) && !self.outgoing.is_full() {
            self.prepare()?;
            let kind = ContentType::ApplicationData;
            let taken = self.outgoing.push(|room| self.sealer.seal(kind, pieces, room))?;
            sealed += taken;
            IoSlice::advance_slices(&mut pieces, taken);
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
        while !this.is_broken {
            let end = (before + this.incoming.most()).min(buffer.capacity());
            if buffer.filled().len() >= end {
                break;
            }
            let has_data = match this.open(buffer, end) {
                Ok(has_data) => has_data,
                Err(error) => {
                    this.fail(error, cx);
                    break;
                }
            };
            if has_data {
                this.incoming.give(buffer, end);
            } else if this.is_ended || buffer.filled().len() > before {
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
        {
            self.is_closed = self.say(FATAL, alert).is_ok();
        }
        // As far as the peer takes it.
        if let Poll::Ready(Err(lost)) = self.outgoing.poll_send(&mut self.io, cx) {
            tracing::debug!("the peer is not told why it is given up: {lost}");
        }
        self.failure = Some(error);
    }

    fn poll_seal(&mut self, cx: &mut Context<'_>, pieces: &mut [IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.outgoing.is_full() {
            ready!(self.outgoing.poll_send(&mut self.io, cx))?;
        }
        let sealed = self.seal(pieces).map_err(invalid)?;
        // What does not leave now leaves when it is flushed, or before more is taken.
        if let Poll::Ready(Err(error)) = self.outgoing.poll_send(&mut self.io, cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(sealed))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_seal(cx, &mut [IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut pieces = [IoSlice::new(&[]); MAX_SLICES];
        for (piece, slice) in pieces.iter_mut().zip(slices) {
            *piece = *slice;
        }
        self.get_mut().poll_seal(cx, &mut pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_closed && this.outgoing.takes_small() {
            this.prepare().map_err(invalid)?;
        }
        ready!(this.outgoing.poll_send(&mut this.io, cx))?;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_closed {
            this.say(WARNING, AlertDescription::CloseNotify)
                .map_err(invalid)?;
            this.is_closed = true;
        }
        ready!(this.outgoing.poll_send(&mut this.io, cx))?;
        Pin::new(&mut this.io).poll_shutdown(cx)
    }
}
