//! Requests to the upload proxy: HTTP/1.1 over TLS, one connection for each.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datapath::error::errno_text;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::Empty;
pub(crate) use https::client::NoResponseError;
use https::client::{self, HttpsServer, RequestConnection};
use https::tls::{self, TlsError, TrustedRoots};
use hyper::body::Body;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

/// Time for which a proxy may answer the question for its certificate.
const CHECK_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes in the system's buffer that are not on their way yet, at most: they are lost with a connection, and were counted as sent. That
/// buffer may have 4 MiB otherwise.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 256 << 10;

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
    #[error("{0:?} is not the https URL of an upload proxy: write https://HOST or https://HOST:PORT")]
    Url(String),
    #[error(
        "there is no certificate (PEM) in what the upload proxy is to be checked against: check --cacert, or CDI's configuration"
    )]
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
    server: HttpsServer,
    /// True once there was a connection.
    was_reached: AtomicBool,
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
        let tls = match trust {
            ProxyTrust::Everyone => tls::insecure_client_config()?,
            ProxyTrust::Roots(pem) => tls::client_config(load_roots(pem)?)?,
        };
        let agent = concat!("kubectl-cdi/", env!("CARGO_PKG_VERSION"));
        Ok(Self {
            server: HttpsServer::new(parsed, tls, agent, errno_text).ok_or_else(wrong)?,
            was_reached: AtomicBool::new(false),
        })
    }

    /// The URL, for people.
    pub(crate) fn display_url(&self) -> &str {
        self.server.url().as_str().trim_end_matches('/')
    }

    /// True if it was there once.
    pub(crate) fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Relaxed)
    }

    /// Connects once. A proxy that cannot be reached now may be reached later; only its
    /// certificate is final.
    pub(crate) async fn check_certificate(&self) -> Result<(), ProxySetupError> {
        match timeout(CHECK_PATIENCE, self.connect::<Empty<Bytes>>()).await {
            Ok(Err(NoResponseError::Untrusted(words))) => Err(self.untrusted_error(words)),
            _ => Ok(()),
        }
    }

    /// The failure to trust this proxy, in the words of TLS.
    pub(crate) fn untrusted_error(&self, words: String) -> ProxySetupError {
        ProxySetupError::Untrusted { url: self.display_url().to_owned(), words }
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
        let request = self.build_request(method, path, headers, body)?;
        // Dropped with this call: an answer may come before the end of the body, which nobody would take then.
        let mut connection = self.connect().await?;
        let response = connection.send_request(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(ProxyResponse {
            status,
            headers,
            words: crate::cluster::printable_line(&client::read_message(response).await),
        })
    }

    fn build_request<B>(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: B,
    ) -> Result<Request<B>, NoResponseError> {
        // A proxy may be below a path (an ingress).
        let path = format!("{}{path}", self.server.url().path().trim_end_matches('/'));
        let request = self.server.build_request(method, &path, body);
        let mut request = request.map_err(|error| NoResponseError::Broken(error.to_string()))?;
        request.headers_mut().extend(headers.iter().cloned());
        Ok(request)
    }

    async fn connect<B>(&self) -> Result<RequestConnection<B>, NoResponseError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let connection = self.server.connect(limit_unsent).await?;
        self.was_reached.store(true, Ordering::Relaxed);
        Ok(connection)
    }
}

/// Has the system keep few bytes that are not on their way yet. Only makes a cut cheaper.
fn limit_unsent(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES).ok();
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

/// The system's roots, with the certificates of `pem` if there are any.
fn load_roots(pem: &[u8]) -> Result<TrustedRoots, ProxySetupError> {
    let mut roots = TrustedRoots::from_system();
    if !pem.is_empty() && roots.add_pem(pem) == 0 {
        return Err(ProxySetupError::NoCertificate);
    }
    Ok(roots)
}
