//! Connections to servers, and their errors.

use std::io;

use fetch::retry::AttemptError;
use program::sockets;
use stream::error::{SourceErrorKind, errno_text};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Both directions of a connection, encrypted or not.
pub trait ServerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ServerStream for T {}

/// A connection of any kind.
pub(crate) type Stream = Box<dyn ServerStream>;

/// Connects to a port of `host`.
pub(crate) async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = sockets::resolve_host(host, port).await?;
    let stream = TcpStream::connect(&*addresses).await?;
    sockets::prepare_socket(&stream);
    Ok(stream)
}

/// Returns the kind of the `error` of a connection attempt.
pub(crate) fn connect_kind(error: &io::Error) -> SourceErrorKind {
    if sockets::is_unknown_host(error) {
        SourceErrorKind::UnknownHost
    } else {
        SourceErrorKind::Connect
    }
}

/// Fills `bytes` from a connection.
pub(crate) async fn read_bytes(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut [u8],
) -> Result<(), AttemptError> {
    let result = stream.read_exact(bytes).await;
    result.map(drop).map_err(|error| connection_error(&error))
}

/// Sends `bytes` at once.
pub(crate) async fn write_bytes(
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
pub(crate) fn connection_error(error: &io::Error) -> AttemptError {
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => format!("the connection broke: {}", errno_text(error)),
    };
    AttemptError::new_transient(SourceErrorKind::Io, message)
}
