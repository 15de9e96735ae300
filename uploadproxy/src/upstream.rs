//! Sends requests to upload servers. It connects with the proxy's certificate, and describes
//! failures in one sentence.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use https::tls;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use program::sockets;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::identity::{NoIdentityError, ProxyIdentity};
use crate::interim_limit::InterimLimit;
use crate::limits::STALLED;
use crate::pool::{ConnectionLease, ConnectionPool, UpstreamConnection};
use crate::request_body::RequestBody;
use crate::volumes::UpstreamAddress;

/// Time limit for a TLS handshake, the same as in Go's transport.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Time after which the older port of an upload server is also tried. At a port that a Service
/// lacks, its address often does not answer, not even with a refusal.
const HEAD_START: Duration = Duration::from_millis(250);

/// Maximum number of upload bytes that are buffered before encryption, and of response bytes that
/// are read ahead.
const BUFFER_BYTES: usize = 64 << 10;

/// The upload servers of the cluster, with the pool of connections to them.
pub(crate) struct UpstreamServers {
    identity: ProxyIdentity,
    pool: Arc<ConnectionPool>,
    /// The address to connect to instead of the upload server's own address, for tests.
    dial: Option<SocketAddr>,
}

/// Reasons why a request receives no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// The certificates for connections to upload servers cannot be read.
    #[error("Error creating http client: {0}")]
    Credentials(#[from] NoIdentityError),
    /// The upload server cannot be reached, or its response cannot be read. Where Go has a message
    /// for the failure, that message is used.
    #[error("http: proxy error: {0}")]
    Transport(String),
    /// The TLS handshake failed. Certificates that have been renewed may help.
    #[error("http: proxy error: {0}")]
    Handshake(io::Error),
    /// The upload was cancelled to make room for another one.
    #[error(
        "the upload was given up, because it made no progress for {} s and another one needs its place: retry or resume it",
        STALLED.as_secs()
    )]
    Stalled,
}

impl UpstreamServers {
    pub(crate) fn new(identity: ProxyIdentity, dial: Option<SocketAddr>) -> Self {
        Self { identity, pool: Arc::default(), dial }
    }

    /// Returns true if the certificates for connections to upload servers are available.
    pub(crate) async fn is_ready(&self) -> bool {
        match self.identity.client_config().await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!("not ready: {error}");
                false
            }
        }
    }

    /// Sends `request` to the upload server at `place`. Returns the response and the connection on
    /// which it arrives. If the body is held back (`Expect: 100-continue`), `want` is signalled as
    /// soon as the upload server asks for the body.
    pub(crate) async fn send_request(
        &self,
        place: &UpstreamAddress,
        mut request: Request<RequestBody>,
        want: Option<oneshot::Sender<()>>,
    ) -> Result<(Response<Incoming>, ConnectionLease), UpstreamError> {
        let want = Mutex::new(want);
        let interim_limit = InterimLimit::with_request(&mut request, move |status| {
            if status == StatusCode::CONTINUE
                && let Some(want) = want.lock().take()
            {
                // The send fails if the body was already dropped, which is not an error.
                want.send(()).ok();
            }
        });
        let answered = interim_limit.wait_for(self.exchange_request(place, request)).await;
        answered.map_err(|flood| UpstreamError::Transport(flood.to_string()))?
    }

    async fn exchange_request(
        &self,
        place: &UpstreamAddress,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, ConnectionLease), UpstreamError> {
        let tls = self.identity.client_config().await?;
        let mut request = request;
        while let Some(mut connection) = self.pool.take_idle(place, &tls) {
            match connection.sender.try_send_request(request).await {
                Ok(response) => return self.accept_response(response, connection, place),
                Err(mut error) => match error.take_message() {
                    // The connection was closed before anything was sent, so the request can be
                    // sent on another one.
                    Some(unsent) => request = unsent,
                    None => return Err(transport_error(error.error())),
                },
            }
        }
        // Boxed: this future is short-lived, but it would be two thirds of the size of the
        // enclosing future, which lives until the upload's end.
        let mut connection = Box::pin(self.connect_upstream(place, tls)).await?;
        match connection.sender.send_request(request).await {
            Ok(response) => self.accept_response(response, connection, place),
            Err(error) => Err(transport_error(&error)),
        }
    }

    fn accept_response(
        &self,
        response: Response<Incoming>,
        connection: UpstreamConnection,
        place: &UpstreamAddress,
    ) -> Result<(Response<Incoming>, ConnectionLease), UpstreamError> {
        let headers = response.headers();
        let odd = if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            Some("it switches to another protocol")
        } else if headers.contains_key(header::TRANSFER_ENCODING)
            && headers.contains_key(header::CONTENT_LENGTH)
        {
            // Rejected for the same reason as in requests (RFC 9112 §6.1): hyper uses one length,
            // and a client may use the other.
            Some("its answer states two lengths")
        } else {
            None
        };
        if let Some(odd) = odd {
            return Err(UpstreamError::Transport(odd.to_owned()));
        }
        let lease = ConnectionLease::new(connection, place.clone(), Arc::clone(&self.pool));
        Ok((response, lease))
    }

    async fn connect_upstream(
        &self,
        place: &UpstreamAddress,
        tls: Arc<ClientConfig>,
    ) -> Result<UpstreamConnection, UpstreamError> {
        let connected = self.dial_place(place, &tls).await;
        if let Err(UpstreamError::Handshake(_)) = connected {
            // The certificates may have been renewed just before.
            let now = self.identity.config_now().await?;
            if !Arc::ptr_eq(&now, &tls) {
                return self.dial_place(place, &now).await;
            }
        }
        connected
    }

    async fn dial_place(
        &self,
        place: &UpstreamAddress,
        config: &Arc<ClientConfig>,
    ) -> Result<UpstreamConnection, UpstreamError> {
        let stream = connect_place(place, self.dial).await?;
        let name = ServerName::try_from(place.host.clone())
            .map_err(|error| UpstreamError::Transport(format!("{}: {error}", place.host)))?;
        let stream =
            timeout(HANDSHAKE_PATIENCE, tls::Stream::connect(stream, Arc::clone(config), name))
                .await
                .unwrap_or_else(|_| Err(io::Error::other("net/http: TLS handshake timeout")))
                .map_err(UpstreamError::Handshake)?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| UpstreamError::Transport(error.to_string()))?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(
                    error = program::report::error_chain(&error),
                    "a connection to an upload server failed"
                );
            }
        });
        Ok(UpstreamConnection::new(sender, task.abort_handle(), Arc::clone(config)))
    }
}

/// Connects to an upload server at one of its ports, or to the address `instead`. An error is about
/// the first port.
async fn connect_place(
    place: &UpstreamAddress,
    instead: Option<SocketAddr>,
) -> Result<TcpStream, UpstreamError> {
    let connect = |port| sockets::connect_tcp(&place.host, port, instead, dial_error_text);
    let mut refusal = String::new();
    let first = async { connect(place.port).await.map_err(|error| refusal = error.to_string()) };
    let older = async {
        let port = place.older_port?;
        sleep(HEAD_START).await;
        connect(port).await.ok()
    };
    let connected = tokio::select! {
        Ok(stream) = first => Some(stream),
        Some(stream) = older => Some(stream),
        else => None,
    };
    connected.ok_or(UpstreamError::Transport(refusal))
}

/// Returns the error text for a failure to connect.
fn dial_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}

fn transport_error(error: &hyper::Error) -> UpstreamError {
    UpstreamError::Transport(if error.is_incomplete_message() {
        "EOF".to_owned()
    } else {
        program::report::error_chain(error)
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn an_upload_server_is_found_at_the_port_of_older_releases() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = server.local_addr().unwrap().port();
        // A backlog of nothing holds one connection. Others get no answer.
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = silent.listen(0).unwrap();
        let _only = TcpStream::connect(silent.local_addr().unwrap()).await.unwrap();
        let mute = silent.local_addr().unwrap().port();
        // Nobody listens on port 1 or 2.
        let known = [(open, None), (open, Some(1)), (1, Some(open)), (mute, Some(open))];
        for (port, older_port) in known {
            let place = UpstreamAddress { host: "127.0.0.1".to_owned(), port, older_port };
            let stream = connect_place(&place, None).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap().port(), open);
        }
        for older_port in [None, Some(2)] {
            let place = UpstreamAddress { host: "127.0.0.1".to_owned(), port: 1, older_port };
            let refused = connect_place(&place, None).await.unwrap_err().to_string();
            let expected = "http: proxy error: dial tcp 127.0.0.1:1: connect: connection refused";
            assert_eq!(refused, expected);
        }
    }
}
