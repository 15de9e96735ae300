//! Requests to an upload server: mutual TLS, HTTP/1.1, no proxy.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use datapath::digest::{DigestAlgorithm, RunningDigest};
use datapath::encode::Encoding;
use datapath::encode::outgoing::{EncodedStream, IncompleteStreamError};
use datapath::error::errno_text;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use https::tls::{self, IdentityError, TrustedRoots};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use program::cdi::{CHECKSUM_HEADER, CONTENT_HEADER, ENCODING_HEADER, UPLOAD_ASYNC, ZSTD};
use program::report::error_chain;
use program::sockets;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use url::Url;

use crate::source::VolumeReadError;

/// Time limit of a handshake (as Go's transport).
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// Time limit of the question whether the server is one of ours.
const QUESTION_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes that wait in front of TLS at most, and of an answer that are read ahead.
const BUFFER_BYTES: usize = 256 << 10;

/// The checksum of a clone in zstd: it finds damage, and costs next to nothing.
const CHECKSUM: DigestAlgorithm = DigestAlgorithm::Crc64Nvme;

/// Limits of the reason in an answer: bytes, and time to read them.
const REASON_BYTES: usize = 16 << 10;
const REASON_PATIENCE: Duration = Duration::from_secs(10);

/// Certificate and key of the client and the authorities of its server, in PEM.
pub(crate) struct ClientIdentity<'p> {
    pub(crate) certificate: &'p [u8],
    pub(crate) key: &'p [u8],
    pub(crate) authorities: &'p [u8],
}

/// A reason why there can be no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error("{0:?} is not the https URL of an upload server")]
    Url(String),
    #[error("there is no certificate in the CA certificates of the server")]
    NoAuthority,
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// An answer.
#[derive(Debug)]
pub(crate) struct ServerResponse {
    pub(crate) status: StatusCode,
    /// The server's words about it; maybe none.
    pub(crate) reason: String,
}

/// An upload server.
pub(crate) struct UploadClient {
    url: Url,
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
}

impl UploadClient {
    pub(crate) fn new(url: &str, identity: &ClientIdentity<'_>) -> Result<Self, SetupError> {
        let wrong = || SetupError::Url(url.to_owned());
        let parsed = Url::parse(url).map_err(|_| wrong())?;
        if parsed.scheme() != "https" {
            return Err(wrong());
        }
        let host = parsed.host_str().ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let roots = TrustedRoots::from_pem(identity.authorities).ok_or(SetupError::NoAuthority)?;
        let tls = tls::mutual_client_config(roots, identity.certificate, identity.key)?;
        Ok(Self {
            name: ServerName::try_from(host.clone()).map_err(|_| wrong())?,
            host,
            port: parsed.port_or_known_default().unwrap_or(443),
            url: parsed,
            tls: Arc::new(tls),
        })
    }

    /// True if the server takes zstd. A server that does not answer as ours do gets what CDI's cloner sends.
    pub(crate) async fn takes_zstd(&self) -> bool {
        match timeout(QUESTION_PATIENCE, self.query_zstd_support()).await {
            Ok(Ok(takes)) => takes,
            Ok(Err(reason)) => {
                tracing::debug!("cannot ask the server what it takes: {reason}");
                false
            }
            Err(_) => {
                tracing::debug!("the server does not say what it takes");
                false
            }
        }
    }

    async fn query_zstd_support(&self) -> Result<bool, String> {
        let mut request = self.build_request(Method::HEAD, UPLOAD_ASYNC, Empty::<Bytes>::new())?;
        // The server names its encodings only to a client that names one.
        let zstd = HeaderValue::from_static(ZSTD);
        request.headers_mut().insert(ENCODING_HEADER, zstd);
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await.map_err(describe_error)?;
        let offered = response.headers().get_all(ENCODING_HEADER).iter();
        let has_zstd = offered
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|encoding| encoding.trim() == ZSTD);
        Ok(response.status() == StatusCode::OK && has_zstd)
    }

    /// Sends a clone and waits for the answer, which may come before all is sent.
    pub(crate) async fn post_clone(
        &self,
        content_type: &str,
        encoding: Encoding,
        stream: EncodedStream<VolumeReadError>,
    ) -> Result<ServerResponse, String> {
        let path = match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        };
        let is_zstd = encoding == Encoding::Zstd;
        let body = CloneBody {
            stream,
            digest: is_zstd.then(|| RunningDigest::new(CHECKSUM)),
        };
        let mut request = self.build_request(Method::POST, &path, body)?;
        let content_type = content_type.parse().map_err(describe_error)?;
        request.headers_mut().insert(CONTENT_HEADER, content_type);
        // CDI's own servers get exactly what CDI's cloner sends: the headers are for ours.
        if is_zstd {
            for (name, value) in [
                (ENCODING_HEADER, ZSTD),
                (CHECKSUM_HEADER, CHECKSUM.name()),
                (header::TRAILER.as_str(), CHECKSUM_HEADER),
            ] {
                request
                    .headers_mut()
                    .insert(name, HeaderValue::from_static(value));
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await.map_err(describe_error)?;
        let status = response.status();
        Ok(ServerResponse {
            status,
            reason: read_reason(response).await,
        })
    }

    fn build_request<B>(&self, method: Method, path: &str, body: B) -> Result<Request<B>, String> {
        let host = match (self.url.host_str().unwrap_or_default(), self.url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(
                header::USER_AGENT,
                concat!("cdi-cloner/", env!("CARGO_PKG_VERSION")),
            )
            .body(body)
            .map_err(describe_error)
    }

    async fn connect<B>(&self) -> Result<SendRequest<B>, String>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stream = sockets::connect_tcp(&self.host, self.port, None, errno_text).await?;
        let connecting = tls::Stream::connect(stream, Arc::clone(&self.tls), self.name.clone());
        let stream = timeout(HANDSHAKE_PATIENCE, connecting)
            .await
            .map_err(|_| "net/http: TLS handshake timeout".to_owned())?
            .map_err(describe_error)?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(describe_error)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("the connection failed: {}", error_chain(&error));
            }
        });
        Ok(sender)
    }
}

/// The body of a clone.
struct CloneBody {
    stream: EncodedStream<VolumeReadError>,
    /// The digest of the bytes so far, if a trailer is to state it.
    digest: Option<RunningDigest>,
}

impl Body for CloneBody {
    type Data = Bytes;
    type Error = IncompleteStreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncompleteStreamError>>> {
        match ready!(self.stream.poll_part(context)) {
            Some(Ok(part)) => {
                if let Some(digest) = &mut self.digest {
                    digest.update(&part);
                }
                Poll::Ready(Some(Ok(Frame::data(part))))
            }
            Some(Err(broken)) => Poll::Ready(Some(Err(broken))),
            // The checksum tells the server that this is the end of the volume.
            None => Poll::Ready(self.digest.take().and_then(checksum_trailer).map(Ok)),
        }
    }
}

fn checksum_trailer(digest: RunningDigest) -> Option<Frame<Bytes>> {
    let checksum = HeaderValue::from_str(&digest.finish_digest()).ok()?;
    let name = HeaderName::from_static(CHECKSUM_HEADER);
    Some(Frame::trailers(HeaderMap::from_iter([(name, checksum)])))
}

/// The sentence that comes with an answer, on one line.
async fn read_reason(response: Response<Incoming>) -> String {
    let body = Limited::new(response.into_body(), REASON_BYTES).collect();
    match timeout(REASON_PATIENCE, body).await {
        Ok(Ok(body)) => {
            let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

fn describe_error<E: std::error::Error>(error: E) -> String {
    error_chain(&error)
}
