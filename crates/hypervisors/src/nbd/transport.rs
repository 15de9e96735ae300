//! Connections to servers, and their errors.

use std::io;

use fetch::retry::AttemptError;
use program::sockets;
use stream::error::{SourceAdvice, SourceError, SourceErrorKind, errno_text};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::uri::NbdAddress;
use super::wire::NbdViolation;

/// Both directions of a connection, encrypted or not.
pub trait NbdTransport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> NbdTransport for T {}

/// A connection of any kind.
pub(super) type Stream = Box<dyn NbdTransport>;

/// Connects to `address`.
pub(super) async fn connect(address: &NbdAddress) -> Result<Stream, AttemptError> {
    let connecting = async {
        Ok::<Stream, io::Error>(match address {
            NbdAddress::Tcp { host, port } => {
                let addresses = sockets::resolve_host(host, *port).await?;
                let stream = TcpStream::connect(&*addresses).await?;
                // Send small requests at once, because the next request often waits for the reply.
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            NbdAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    };
    connecting.await.map_err(|error| {
        let message = format!("cannot connect to the NBD server: {}", errno_text(&error));
        let kind = if sockets::is_unknown_host(&error) {
            SourceErrorKind::UnknownHost
        } else {
            SourceErrorKind::Connect
        };
        let is_no_socket =
            matches!(address, NbdAddress::Unix(_)) && error.kind() == io::ErrorKind::NotFound;
        let advice = is_no_socket.then_some(SourceAdvice::CheckSocket);
        AttemptError::from_transient(SourceError::new(kind, message).with_advice(advice))
    })
}

/// Fills `bytes` from a connection.
pub(super) async fn read_bytes(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut [u8],
) -> Result<(), AttemptError> {
    let result = stream.read_exact(bytes).await;
    result.map(drop).map_err(|error| connection_error(&error))
}

/// Sends `bytes` at once.
pub(super) async fn write_bytes(
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> Result<(), AttemptError> {
    let writing = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    writing.await.map_err(|error| connection_error(&error))
}

/// Creates the failure for a connection that ended or broke.
pub(super) fn connection_error(error: &io::Error) -> AttemptError {
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the NBD server closed the connection".to_owned(),
        _ => format!("the connection to the NBD server broke: {}", errno_text(error)),
    };
    AttemptError::new_transient(SourceErrorKind::Io, message)
}

impl From<NbdViolation> for AttemptError {
    fn from(violation: NbdViolation) -> Self {
        let message = format!("the NBD server violates the protocol: {}", violation.0);
        Self::Final(SourceError::new(SourceErrorKind::Invalid, message))
    }
}
