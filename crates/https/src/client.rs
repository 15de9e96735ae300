//! A client for one server: HTTP/1.1 over TLS, with a new connection for each request and without
//! a proxy.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use program::report::error_chain;
use program::sockets::{self, ConnectError};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig, InvalidMessage};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::tls;

/// Timeout of a TLS handshake, as in Go's transport.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of bytes buffered before encryption, and of response bytes that are read ahead.
const BUFFER_BYTES: usize = 256 << 10;

/// Limits for the message in a response: its bytes, and the time to read them.
const MESSAGE_BYTES: usize = 16 << 10;
const MESSAGE_PATIENCE: Duration = Duration::from_secs(10);

/// A function that formats an error from the operating system.
type ErrorText = fn(&io::Error) -> String;

/// A server that is reached over HTTPS.
pub struct HttpsServer {
    url: Url,
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    agent: &'static str,
    error_text: ErrorText,
}

/// Reasons why a request received no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoResponseError {
    /// The server cannot be reached.
    #[error(transparent)]
    Unreachable(#[from] ConnectError),
    /// The server does not speak TLS.
    #[error("{0}")]
    NoTls(String),
    /// No trusted authority has signed the server's certificate.
    #[error("{0}")]
    UnknownIssuer(String),
    /// The server's certificate is invalid for another reason.
    #[error("{0}")]
    InvalidCertificate(String),
    /// The server ended the connection, as it does if it rejects the client's certificate.
    #[error("{0}")]
    Ended(String),
    /// The connection failed for another reason.
    #[error("{0}")]
    Broken(String),
}

impl NoResponseError {
    /// Creates the error for a TLS handshake that failed.
    fn from_handshake(error: &io::Error) -> Self {
        let reason = error_chain(error);
        match tls_error(error) {
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                Self::NoTls(reason)
            }
            Some(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => Self::UnknownIssuer(reason),
            Some(rustls::Error::InvalidCertificate(_)) => Self::InvalidCertificate(reason),
            _ if is_connection_end(error) => Self::Ended(reason),
            _ => Self::Broken(reason),
        }
    }
}

impl From<hyper::Error> for NoResponseError {
    fn from(error: hyper::Error) -> Self {
        let reason = error_chain(&error);
        let cause = error.source().and_then(|cause| cause.downcast_ref());
        if error.is_canceled()
            || error.is_incomplete_message()
            || cause.is_some_and(is_connection_end)
        {
            Self::Ended(reason)
        } else {
            Self::Broken(reason)
        }
    }
}

/// Returns the error of the TLS library in `error`, if there is one.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns true for an error that means that the peer has closed the connection.
fn is_connection_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
        || matches!(tls_error(error), Some(rustls::Error::AlertReceived(_)))
}

/// A connection for one request. It is closed when dropped.
pub struct RequestConnection<B> {
    sender: SendRequest<B>,
    /// Scheme, host and port of the server, for the log.
    origin: String,
    address: Option<SocketAddr>,
    _connection: AbortOnDropHandle<()>,
}

impl<B: Body + 'static> RequestConnection<B> {
    /// Sends `request` and waits for the response, which may arrive before the whole body was
    /// sent.
    pub async fn send_request(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, NoResponseError> {
        // The query is not logged, because it may contain data of the caller.
        let shown = format!("{} {}{}", request.method(), self.origin, request.uri().path());
        let response = self.sender.send_request(request).await?;
        let address = self.address.map(tracing::field::display);
        tracing::info!(status = %response.status(), address, "{shown}");
        Ok(response)
    }
}

impl HttpsServer {
    /// Creates a client for the server in an `https` URL. Returns `None` for any other URL.
    /// `agent` is the value of the `User-Agent` header. `error_text` formats the error if the
    /// address cannot be reached.
    pub fn new(
        url: Url,
        tls: ClientConfig,
        agent: &'static str,
        error_text: ErrorText,
    ) -> Option<Self> {
        if url.scheme() != "https" {
            return None;
        }
        let host = url.host_str()?;
        // `Url` encloses IPv6 addresses in brackets, which TLS and sockets do not accept.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Self {
            name: ServerName::try_from(host.clone()).ok()?,
            host,
            port: url.port_or_known_default().unwrap_or(443),
            url,
            tls: Arc::new(tls),
            agent,
            error_text,
        })
    }

    /// The URL of the server.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Builds a request for `path` with the headers `Host` and `User-Agent`.
    pub fn build_request<B>(
        &self,
        method: Method,
        path: &str,
        body: B,
    ) -> Result<Request<B>, NoResponseError> {
        let host = match (self.url.host_str().unwrap_or_default(), self.url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::USER_AGENT, HeaderValue::from_static(self.agent))
            .body(body)
            .map_err(|error| NoResponseError::Broken(error.to_string()))
    }

    /// Connects to the server. `prepare` may set socket options.
    pub async fn connect<B>(
        &self,
        prepare: fn(&TcpStream),
    ) -> Result<RequestConnection<B>, NoResponseError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let stream = sockets::connect_tcp(&self.host, self.port, None, self.error_text).await?;
        prepare(&stream);
        let address = stream.peer_addr().ok();
        let connecting = tls::Stream::connect(stream, Arc::clone(&self.tls), self.name.clone());
        let stream = timeout(HANDSHAKE_PATIENCE, connecting)
            .await
            // This is the wording of Go's transport, which CDI's cloner prints.
            .map_err(|_| NoResponseError::Broken("net/http: TLS handshake timeout".to_owned()))?
            .map_err(|error| NoResponseError::from_handshake(&error))?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await?;
        let connection = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("the connection failed: {}", error_chain(&error));
            }
        });
        let origin = self.url.origin().ascii_serialization();
        Ok(RequestConnection {
            sender,
            origin,
            address,
            _connection: AbortOnDropHandle::new(connection),
        })
    }
}

/// Reads the message in a response. Returns an empty string if it is too long or takes too long.
pub async fn read_message(response: Response<Incoming>) -> String {
    let body = Limited::new(response.into_body(), MESSAGE_BYTES).collect();
    match timeout(MESSAGE_PATIENCE, body).await {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        // Not an error: the response status already describes the failure.
        _ => String::new(),
    }
}
