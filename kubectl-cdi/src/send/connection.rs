//! Requests to the upload proxy: HTTP/1.1 over TLS, one connection for each.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datapath::error::errno_text;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use https::tls::{self, TlsError, TrustedRoots};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use program::report::error_chain;
use program::sockets;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// Time limit of a handshake (as Go's transport).
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that wait in front of TLS at most, and of an answer that are read ahead.
const BUFFER_BYTES: usize = 256 << 10;

/// Bytes in the system's buffer that are not on their way yet, at most: they are lost with a connection, and were counted as sent. That
/// buffer may have 4 MiB otherwise.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 256 << 10;

/// Limits of the words in an answer: bytes, and time to read them.
const WORDS_BYTES: usize = 16 << 10;
const WORDS_PATIENCE: Duration = Duration::from_secs(10);

/// The certificates that the proxy's is checked against.
#[derive(Debug, Clone)]
pub(crate) enum ProxyTrust {
    /// Those of the system, and these in PEM.
    Roots(Vec<u8>),
    /// None: whoever answers is believed.
    Everyone,
}

/// A proxy that cannot be one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxySetupError {
    #[error("{0:?} is not the https URL of an upload proxy")]
    Url(String),
    #[error("there is no certificate in what the upload proxy is to be checked against")]
    NoCertificate,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(
        "the certificate of the upload proxy at {url} is not trusted: {words}; give --cacert, or --insecure to trust whoever answers"
    )]
    Untrusted { url: String, words: String },
}

/// The upload proxy.
pub(crate) struct ProxyClient {
    url: Url,
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    /// True once there was a connection.
    was_reached: AtomicBool,
}

/// A request that has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoResponseError {
    /// There is no connection.
    Unreachable(String),
    /// The certificate is not one that is trusted.
    Untrusted(String),
    /// The connection broke.
    Broken(String),
}

impl NoResponseError {
    /// The reason, in words.
    pub(crate) fn reason_text(&self) -> &str {
        match self {
            Self::Unreachable(words) | Self::Untrusted(words) | Self::Broken(words) => words,
        }
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct ProxyResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The server's words about it, on one line; maybe none.
    pub(crate) words: String,
}

impl ProxyResponse {
    /// The number in a header.
    pub(crate) fn header_number(&self, name: &HeaderName) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }
}

impl ProxyClient {
    /// The proxy at `url`.
    pub(crate) fn new(url: &str, trust: &ProxyTrust) -> Result<Self, ProxySetupError> {
        let wrong = || ProxySetupError::Url(url.to_owned());
        let parsed = Url::parse(url).map_err(|_| wrong())?;
        if parsed.scheme() != "https" {
            return Err(wrong());
        }
        let host = parsed.host_str().ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match trust {
            ProxyTrust::Everyone => tls::insecure_client_config()?,
            ProxyTrust::Roots(pem) => tls::client_config(load_roots(pem)?)?,
        };
        Ok(Self {
            name: ServerName::try_from(host.clone()).map_err(|_| wrong())?,
            host,
            port: parsed.port_or_known_default().unwrap_or(443),
            url: parsed,
            tls: Arc::new(tls),
            was_reached: AtomicBool::new(false),
        })
    }

    /// The URL, for people.
    pub(crate) fn display_url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// True if it was there once.
    pub(crate) fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Relaxed)
    }

    /// Connects once. A proxy that cannot be reached now may be reached later; only its
    /// certificate is final.
    pub(crate) async fn check_certificate(&self) -> Result<(), ProxySetupError> {
        match timeout(HANDSHAKE_PATIENCE, self.connect::<Empty<Bytes>>()).await {
            Ok(Err(NoResponseError::Untrusted(words))) => Err(self.untrusted_error(words)),
            _ => Ok(()),
        }
    }

    /// The failure to trust this proxy, in the words of TLS.
    pub(crate) fn untrusted_error(&self, words: String) -> ProxySetupError {
        ProxySetupError::Untrusted {
            url: self.display_url().to_owned(),
            words,
        }
    }

    /// Sends a request and gives its answer, which may come before all of `body` is sent.
    pub(crate) async fn send_request<B>(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: B,
    ) -> Result<ProxyResponse, NoResponseError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let request = self.build_request(method, path, headers, body);
        // Dropped with this call: an answer may come before the end of the body, which nobody would take then.
        let (mut sender, _connection) = self.connect().await?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| broken_error(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(ProxyResponse {
            status,
            headers,
            words: read_message(response).await,
        })
    }

    fn build_request<B>(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: B,
    ) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        // A proxy may be below a path (an ingress).
        let path = format!("{}{path}", self.url.path().trim_end_matches('/'));
        *request.uri_mut() = path.parse().unwrap_or_default();
        let host = match self.url.port() {
            Some(port) => format!("{}:{port}", self.url.host_str().unwrap_or_default()),
            None => self.url.host_str().unwrap_or_default().to_owned(),
        };
        if let Ok(host) = HeaderValue::from_str(&host) {
            request.headers_mut().insert(header::HOST, host);
        }
        let agent = concat!("kubectl-cdi/", env!("CARGO_PKG_VERSION"));
        let agent = HeaderValue::from_static(agent);
        request.headers_mut().insert(header::USER_AGENT, agent);
        request.headers_mut().extend(headers.iter().cloned());
        request
    }

    async fn connect<B>(&self) -> Result<(SendRequest<B>, AbortOnDropHandle<()>), NoResponseError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let stream = sockets::connect_tcp(&self.host, self.port, None, errno_text)
            .await
            .map_err(NoResponseError::Unreachable)?;
        // Only makes a cut cheaper.
        #[cfg(target_os = "linux")]
        socket2::SockRef::from(&stream)
            .set_tcp_notsent_lowat(UNSENT_BYTES)
            .ok();
        let connecting = tls::Stream::connect(stream, Arc::clone(&self.tls), self.name.clone());
        let stream = timeout(HANDSHAKE_PATIENCE, connecting)
            .await
            .map_err(|_| NoResponseError::Unreachable("TLS handshake timeout".to_owned()))?
            .map_err(|error| match is_untrusted(&error) {
                true => NoResponseError::Untrusted(error_chain(&error)),
                false => NoResponseError::Unreachable(error_chain(&error)),
            })?;
        self.was_reached.store(true, Ordering::Relaxed);
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken_error(&error))?;
        let connection = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("the connection failed: {}", error_chain(&error));
            }
        });
        Ok((sender, AbortOnDropHandle::new(connection)))
    }
}

/// The system's roots, with the certificates of `pem` if there are any.
fn load_roots(pem: &[u8]) -> Result<TrustedRoots, ProxySetupError> {
    let mut roots = TrustedRoots::from_system();
    if !pem.is_empty() && roots.add_pem(pem) == 0 {
        return Err(ProxySetupError::NoCertificate);
    }
    Ok(roots)
}

fn is_untrusted(error: &std::io::Error) -> bool {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

fn broken_error(error: &hyper::Error) -> NoResponseError {
    NoResponseError::Broken(error_chain(error))
}

/// The sentence that comes with an answer, on one line.
async fn read_message(response: Response<Incoming>) -> String {
    let body = Limited::new(response.into_body(), WORDS_BYTES).collect();
    match timeout(WORDS_PATIENCE, body).await {
        Ok(Ok(body)) => {
            let text = body.to_bytes();
            crate::cluster::printable_line(&String::from_utf8_lossy(&text))
        }
        _ => String::new(),
    }
}
