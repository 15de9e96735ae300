//! Sends requests to an upload server over HTTP/1.1 with mutual TLS, without a proxy.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use codec::encode::Encoding;
use codec::encode::outgoing::{EncodedStream, IncompleteStreamError};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::Empty;
use https::client::{self, HttpsServer, NoResponseError};
use https::tls::{self, TlsError, TrustedRoots};
use hyper::body::{Body, Frame};
use program::cdi::{CHECKSUM_HEADER, CONTENT_HEADER, ENCODING_HEADER, UPLOAD_ASYNC, ZSTD};
use stream::digest::{DigestAlgorithm, RunningDigest};
use stream::error::errno_text;
use tokio::time::timeout;
use url::Url;

use crate::source::VolumeReadError;

/// Timeout of the request that asks whether the server accepts zstd.
const QUESTION_PATIENCE: Duration = Duration::from_secs(5);

/// The checksum of a zstd clone. It detects damage and is cheap to compute.
const CHECKSUM: DigestAlgorithm = DigestAlgorithm::Crc64Nvme;

/// The client's certificate and key, and the certificates of the server's authorities, all in PEM.
pub(crate) struct ClientIdentity<'p> {
    pub(crate) certificate: &'p [u8],
    pub(crate) key: &'p [u8],
    pub(crate) authorities: &'p [u8],
}

/// Reasons why a client cannot be created from its URL, certificates and key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error(
        "{0:?} is not the https URL of an upload server: write https://HOST:PORT/v1beta1/upload"
    )]
    Url(String),
    #[error("no certificate found in the CA certificates of the server")]
    NoAuthority,
    #[error(transparent)]
    Identity(#[from] TlsError),
}

/// The response of an upload server.
#[derive(Debug)]
pub(crate) struct ServerResponse {
    pub(crate) status: StatusCode,
    /// The message in the body, on one line; may be empty.
    pub(crate) reason: String,
}

/// A client of one upload server.
pub(crate) struct UploadClient(HttpsServer);

impl UploadClient {
    pub(crate) fn new(url: &str, identity: &ClientIdentity<'_>) -> Result<Self, SetupError> {
        let wrong = || SetupError::Url(url.to_owned());
        let parsed = Url::parse(url).map_err(|_| wrong())?;
        let roots = TrustedRoots::from_pem(identity.authorities).ok_or(SetupError::NoAuthority)?;
        let tls = tls::mutual_client_config(roots, identity.certificate, identity.key)?;
        let agent = concat!("cdi-cloner/", env!("CARGO_PKG_VERSION"));
        let server = HttpsServer::new(parsed, tls, agent, errno_text);
        server.map(Self).ok_or_else(wrong)
    }

    /// Asks the server whether it accepts zstd. Returns false if the server does not respond as
    /// ours does; the clone is then sent in CDI's format.
    pub(crate) async fn takes_zstd(&self) -> bool {
        match timeout(QUESTION_PATIENCE, self.query_zstd_support()).await {
            Ok(Ok(takes)) => takes,
            Ok(Err(reason)) => {
                tracing::debug!("cannot ask the server for its encodings: {reason}");
                false
            }
            Err(_) => {
                tracing::debug!("the server does not list the encodings that it accepts");
                false
            }
        }
    }

    async fn query_zstd_support(&self) -> Result<bool, NoResponseError> {
        // Every upload server answers a HEAD request on this path without beginning an upload
        // (contract §2.4).
        let body = Empty::<Bytes>::new();
        let mut request = self.0.build_request(Method::HEAD, UPLOAD_ASYNC, body)?;
        // The server lists its encodings only if the request contains this header.
        let zstd = HeaderValue::from_static(ZSTD);
        request.headers_mut().insert(ENCODING_HEADER, zstd);
        let response = self.0.connect(|_| ()).await?.send_request(request).await?;
        let offered = response.headers().get_all(ENCODING_HEADER).iter();
        let has_zstd = offered
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|encoding| encoding.trim() == ZSTD);
        Ok(response.status() == StatusCode::OK && has_zstd)
    }

    /// Sends a clone and waits for the response, which may arrive before the whole clone is sent.
    pub(crate) async fn post_clone(
        &self,
        content_type: &'static str,
        encoding: Encoding,
        stream: EncodedStream<VolumeReadError>,
    ) -> Result<ServerResponse, NoResponseError> {
        let url = self.0.url();
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let is_zstd = matches!(encoding, Encoding::Zstd(_));
        let body = CloneBody { stream, digest: is_zstd.then(|| RunningDigest::new(CHECKSUM)) };
        let mut request = self.0.build_request(Method::POST, &path, body)?;
        request.headers_mut().insert(CONTENT_HEADER, HeaderValue::from_static(content_type));
        // Only our servers support these headers. CDI's servers get exactly the same request as
        // from CDI's cloner.
        if is_zstd {
            for (name, value) in [
                (ENCODING_HEADER, ZSTD),
                (CHECKSUM_HEADER, CHECKSUM.name()),
                (header::TRAILER.as_str(), CHECKSUM_HEADER),
            ] {
                request.headers_mut().insert(name, HeaderValue::from_static(value));
            }
        }
        let response = self.0.connect(|_| ()).await?.send_request(request).await?;
        let status = response.status();
        let message = client::read_message(response).await;
        Ok(ServerResponse {
            status,
            reason: message.split_whitespace().collect::<Vec<_>>().join(" "),
        })
    }
}

/// The body of a clone.
struct CloneBody {
    stream: EncodedStream<VolumeReadError>,
    /// The digest of the bytes sent so far, if it is to be sent in a trailer.
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
            // The checksum tells the server that the volume is complete.
            None => Poll::Ready(self.digest.take().and_then(checksum_trailer).map(Ok)),
        }
    }
}

fn checksum_trailer(digest: RunningDigest) -> Option<Frame<Bytes>> {
    let checksum = HeaderValue::from_str(&digest.finish_digest()).ok()?;
    let name = HeaderName::from_static(CHECKSUM_HEADER);
    Some(Frame::trailers(HeaderMap::from_iter([(name, checksum)])))
}
