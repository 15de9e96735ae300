//! The handshake, which is all rustls'.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, Error, ExtractedSecrets, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::records::Kernel;

/// Bytes that are read at once. They are not kept: a handshake that waits holds what has come.
const READ_BYTES: usize = 4 << 10;

/// A handshake that is complete.
pub(super) struct Shaken {
    pub(super) secrets: ExtractedSecrets,
    pub(super) kernel: Kernel,
    /// Data that came along with its end.
    pub(super) data: Vec<u8>,
    /// What came behind that, and is not a whole record yet.
    pub(super) rest: Vec<u8>,
    /// The peer has said already that nothing more comes.
    pub(super) is_ended: bool,
    pub(super) facts: Facts,
}

/// The outcome of a handshake that others ask for.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) protocol: Option<Vec<u8>>,
    pub(super) certificate: Option<CertificateDer<'static>>,
}

/// One of the two sides of a handshake.
pub(super) trait Side {
    type Data;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn state(&self) -> &CommonState;

    fn finish(self) -> Result<(ExtractedSecrets, Kernel), Error>;
}

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn finish(self) -> Result<(ExtractedSecrets, Kernel), Error> {
        let (secrets, kernel) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Kernel::Server(kernel)))
    }
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn state(&self) -> &CommonState {
        self
    }

    fn finish(self) -> Result<(ExtractedSecrets, Kernel), Error> {
        let (secrets, kernel) = self.dangerous_into_kernel_connection()?;
        Ok((secrets, Kernel::Client(kernel)))
    }
}

/// The server's side of a handshake.
pub(super) fn server(config: &ServerConfig) -> Result<UnbufferedServerConnection, Error> {
    let mut config = config.clone();
    config.enable_secret_extraction = true;
    UnbufferedServerConnection::new(Arc::new(config))
}

/// The client's side of one with the server of this `name`.
pub(super) fn client(
    config: &ClientConfig,
    name: ServerName<'static>,
) -> Result<UnbufferedClientConnection, Error> {
    let mut config = config.clone();
    config.enable_secret_extraction = true;
    UnbufferedClientConnection::new(Arc::new(config), name)
}

/// Bytes of a handshake on their way.
#[derive(Default)]
struct Flight {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    data: Vec<u8>,
    is_ended: bool,
}

/// The next thing to do.
enum Next {
    Read,
    Finish,
}

/// Shakes hands over `io`.
pub(super) async fn shake<S, H>(io: &mut S, mut side: H) -> io::Result<Shaken>
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Side,
{
    let mut flight = Flight::default();
    loop {
        let next = flight.advance(&mut side);
        if next.is_err() {
            flight.take_alerts(&mut side);
        }
        let sent = send(io, &mut flight.outgoing).await;
        match next.map_err(invalid)? {
            Next::Finish => {
                sent?;
                break;
            }
            Next::Read => sent?,
        }
        if poll_fn(|cx| flight.poll_read(io, cx)).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof"));
        }
    }
    let state = side.state();
    let facts = Facts {
        protocol: state.alpn_protocol().map(<[u8]>::to_vec),
        certificate: state
            .peer_certificates()
            .and_then(<[_]>::first)
            .map(|certificate| certificate.clone().into_owned()),
    };
    let (secrets, kernel) = side.finish().map_err(invalid)?;
    Ok(Shaken {
        secrets,
        kernel,
        data: flight.data,
        rest: flight.incoming,
        is_ended: flight.is_ended,
        facts,
    })
}

async fn send<S: AsyncWrite + Unpin>(io: &mut S, outgoing: &mut Vec<u8>) -> io::Result<()> {
    if outgoing.is_empty() {
        return Ok(());
    }
    io.write_all(&std::mem::take(outgoing)).await?;
    io.flush().await
}

impl Flight {
    /// Reads something; returns how many bytes it were.
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        io: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut piece = [0; READ_BYTES];
        let mut piece = ReadBuf::new(&mut piece);
        ready!(Pin::new(io).poll_read(cx, &mut piece))?;
        self.incoming.extend_from_slice(piece.filled());
        Poll::Ready(Ok(piece.filled().len()))
    }

    /// Goes on until there is something to be read, or nothing more to be done.
    fn advance<H: Side>(&mut self, side: &mut H) -> Result<Next, Error> {
        loop {
            let UnbufferedStatus { discard, state } = side.process(&mut self.incoming);
            let next = match state {
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut self.outgoing).map(|()| None),
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    Ok(None)
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        self.data.extend_from_slice(record?.payload);
                    }
                    Ok(None)
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_ended = true;
                    Ok(None)
                }
                Ok(ConnectionState::BlockedHandshake) => Ok(Some(Next::Read)),
                Ok(ConnectionState::WriteTraffic(_)) => Ok(Some(Next::Finish)),
                Ok(state) => Err(Error::General(format!("a handshake ended with {state:?}"))),
                Err(error) => Err(error),
            };
            self.incoming.drain(..discard.min(self.incoming.len()));
            if let Some(next) = next? {
                return Ok(next);
            }
        }
    }

    /// Takes what tells the peer why it is refused. Nothing else may be asked of a handshake that has failed: rustls panics.
    fn take_alerts<H: Side>(&mut self, side: &mut H) {
        while side.state().wants_write()
            && let Ok(ConnectionState::EncodeTlsData(data)) = side.process(&mut self.incoming).state
            && encode(data, &mut self.outgoing).is_ok()
        {}
    }
}

/// What wants to be sent, behind what waits already.
fn encode<D>(mut data: EncodeTlsData<'_, D>, outgoing: &mut Vec<u8>) -> Result<(), Error> {
    let start = outgoing.len();
    let wanted = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => size.required_size,
        Ok(_) | Err(EncodeError::AlreadyEncoded) => return Ok(()),
    };
    outgoing.resize(start + wanted, 0);
    let room = outgoing.get_mut(start..).unwrap_or_default();
    data.encode(room)
        .map(drop)
        .map_err(|error| Error::General(error.to_string()))
}

/// An error of TLS as one of a stream.
pub(super) fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
