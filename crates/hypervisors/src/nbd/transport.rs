//! Connections to NBD servers.

use std::io;

use fetch::retry::AttemptError;
use stream::error::{SourceAdvice, SourceError, errno_text};
use tokio::net::UnixStream;

use super::uri::NbdAddress;
use crate::blocks::transport::{Stream, connect_kind, connect_tcp};

/// Connects to `address`.
pub(super) async fn connect(address: &NbdAddress) -> Result<Stream, AttemptError> {
    let connecting = async {
        Ok::<Stream, io::Error>(match address {
            NbdAddress::Tcp { host, port } => Box::new(connect_tcp(host, *port).await?),
            NbdAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    };
    connecting.await.map_err(|error| {
        let message = format!("cannot connect to the NBD server: {}", errno_text(&error));
        let is_no_socket =
            matches!(address, NbdAddress::Unix(_)) && error.kind() == io::ErrorKind::NotFound;
        let advice = is_no_socket.then_some(SourceAdvice::CheckSocket);
        let error = SourceError::new(connect_kind(&error), message).with_advice(advice);
        AttemptError::from_transient(error)
    })
}
