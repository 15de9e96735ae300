//! Requests to the upload proxy, sent by HTTP/1.1 over TLS with a new connection for each request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{Either, Empty};
pub(crate) use https::client::NoResponseError;
use https::client::{self, HttpsServer, RequestConnection};
use https::tls::{self, TrustedRoots};
use stream::error::errno_text;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::upload_body::UploadBody;
use crate::error::PluginError;

/// Time limit for the connection that checks the proxy's certificate.
const CHECK_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of unsent bytes in the socket's send buffer, which could otherwise hold 4 MiB.
/// These bytes count as sent, and they are lost if the connection breaks.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 256 << 10;

/// A client of the upload proxy.
pub(crate) struct ProxyClient {
    server: HttpsServer,
    /// True once a connection has been established.
    was_reached: AtomicBool,
}

/// The body of a request: the rest of the image, or nothing.
pub(crate) type UploadRequestBody = Either<UploadBody, Empty<Bytes>>;

/// A response of the proxy, or of the upload server behind it.
#[derive(Debug, Clone)]
pub(crate) struct ProxyResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The message in the body, on one line; it may be empty.
    pub(crate) words: String,
}

impl ProxyResponse {
    /// Returns the value of a numeric header, or `None` if it is absent or malformed.
    pub(crate) fn header_number(&self, name: &HeaderName) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }
}

impl ProxyClient {
    /// Creates a client for the proxy at `url`. It does not connect yet. The proxy's certificate is
    /// verified with the system's root certificates and those in `trusted` (PEM), which may be
    /// empty; `None` accepts any certificate.
    pub(crate) fn new(url: &str, trusted: Option<&[u8]>) -> Result<Self, PluginError> {
        let wrong = || {
            PluginError::usage(format!(
                "{url:?} is not the https URL of an upload proxy: write https://HOST or https://HOST:PORT"
            ))
        };
        let parsed = Url::parse(url).map_err(|_| wrong())?;
        let tls = match trusted {
            None => tls::insecure_client_config(),
            Some(pem) => tls::client_config(load_roots(pem)?),
        };
        let tls = tls.map_err(|error| PluginError::usage(error.to_string()))?;
        let agent = concat!("kubectl-cdi/", env!("CARGO_PKG_VERSION"));
        Ok(Self {
            server: HttpsServer::new(parsed, tls, agent, errno_text).ok_or_else(wrong)?,
            was_reached: AtomicBool::new(false),
        })
    }

    /// Returns the URL for messages, without a trailing slash.
    pub(crate) fn display_url(&self) -> &str {
        self.server.url().as_str().trim_end_matches('/')
    }

    /// Returns true if at least one connection has been established.
    pub(crate) fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Relaxed)
    }

    /// Connects once, and fails only if the certificate is not trusted. All other failures are
    /// ignored, because a proxy that is unreachable now may become reachable later.
    pub(crate) async fn check_certificate(&self) -> Result<(), PluginError> {
        match timeout(CHECK_PATIENCE, self.connect()).await {
            Ok(Err(
                NoResponseError::UnknownIssuer(words) | NoResponseError::InvalidCertificate(words),
            )) => Err(self.untrusted_error(&words)),
            _ => Ok(()),
        }
    }

    /// Creates the error for an untrusted certificate; `words` is the message of the TLS library.
    pub(crate) fn untrusted_error(&self, words: &str) -> PluginError {
        let url = self.display_url();
        let advice = "give --cacert, or --insecure to skip verification";
        PluginError::target(format!(
            "the certificate of the upload proxy at {url} is not trusted: {words}; {advice}"
        ))
    }

    /// Sends a request and returns the response, which may arrive before all of `body` is sent.
    pub(crate) async fn send_request(
        &self,
        method: Method,
        path: &str,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: UploadRequestBody,
    ) -> Result<ProxyResponse, NoResponseError> {
        // The proxy may be served under a path prefix, for example behind an ingress.
        let path = format!("{}{path}", self.server.url().path().trim_end_matches('/'));
        let mut request = self.server.build_request(method, &path, body)?;
        request.headers_mut().extend(headers);
        // The connection is dropped when this function returns. If the response arrives before the
        // end of the body, nothing reads the rest.
        let mut connection = self.connect().await?;
        let response = connection.send_request(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(ProxyResponse {
            status,
            headers,
            words: crate::cluster::printable_line(&client::read_message(response).await),
        })
    }

    async fn connect(&self) -> Result<RequestConnection<UploadRequestBody>, NoResponseError> {
        let connection = self.server.connect(limit_unsent).await?;
        self.was_reached.store(true, Ordering::Relaxed);
        Ok(connection)
    }
}

/// Limits the unsent bytes in the socket's send buffer. Errors are ignored, because the limit only
/// reduces the loss when a connection breaks.
fn limit_unsent(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES).ok();
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

/// Loads the system's root certificates and adds the certificates in `pem`, if any.
fn load_roots(pem: &[u8]) -> Result<TrustedRoots, PluginError> {
    let mut roots = TrustedRoots::from_system();
    if !pem.is_empty() && roots.add_pem(pem) == 0 {
        return Err(PluginError::usage(
            "no certificate (PEM) found to verify the upload proxy with: check --cacert, or CDI's configuration",
        ));
    }
    Ok(roots)
}
