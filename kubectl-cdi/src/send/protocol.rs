//! The requests of a resumable upload (docs/use/upload.md, "Resuming"), and the interpretation of
//! their responses.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Body;
use program::cdi::{CHECKSUM_HEADER, KEPT_HEADER, KEPT_LATER, MARKS_HEADER, RESUMABLE};
use stream::error::ThreadStartError;
use stream::options::{ChosenFormat, FORMAT_HEADER};
use stream::prefix_crc::PrefixCrc;

use super::connection::{NoResponseError, ProxyClient, ProxyResponse};
use super::ledger::CHECKSUM_NAME;
use super::location::UploadLocation;
use crate::cluster::UploadToken;
use crate::error::PluginError;
use crate::image::KeptPrefix;

const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
const CHECKSUM: HeaderName = HeaderName::from_static(CHECKSUM_HEADER);

/// The header with the version of tus (<https://tus.io/protocols/resumable-upload>), sent with
/// every request.
const TUS: (HeaderName, HeaderValue) =
    (HeaderName::from_static("tus-resumable"), HeaderValue::from_static("1.0.0"));

/// A header of the first request: the length of the stream will be sent with the last request.
const LATER: (HeaderName, HeaderValue) =
    (HeaderName::from_static("upload-defer-length"), HeaderValue::from_static("1"));

const PART: (HeaderName, HeaderValue) =
    (header::CONTENT_TYPE, HeaderValue::from_static("application/offset+octet-stream"));

/// Reasons why a request failed.
#[derive(Debug)]
pub(crate) enum UploadRequestError {
    /// The token is not valid, or has expired.
    Unauthorized,
    /// The server does not have this upload, or does not support the path at all (404, 405).
    Missing,
    /// The server has ended the upload. Contains the reason, if the server sent one.
    Ended(String),
    /// The server rejects the image. Contains its message.
    Refused(String),
    /// Every other failure: of the cluster, which issues tokens, of the proxy, or of the image,
    /// which cannot be read any more. Some of them may pass.
    Failed(PluginError),
}

impl From<ThreadStartError> for UploadRequestError {
    fn from(error: ThreadStartError) -> Self {
        PluginError::passing(error.to_string()).into()
    }
}

impl From<PluginError> for UploadRequestError {
    fn from(error: PluginError) -> Self {
        Self::Failed(error)
    }
}

/// The result of a request that begins an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BegunUpload {
    /// The upload has begun at this path. The second field is the part that the server has kept
    /// from an earlier upload, if the server has determined it already.
    At(UploadLocation, Option<KeptPrefix>),
    /// Resumable uploads are not supported here.
    NotHere,
}

/// Returns the header that states the format of the image, if the server need not detect it.
pub(super) fn format_header(format: Option<ChosenFormat>) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::from_static(FORMAT_HEADER);
    format.map(|format| (name, HeaderValue::from_static(format.name())))
}

/// Begins an upload of an image in this format. `marks` are checksums of prefixes of the disk that
/// the server may already have.
pub(crate) async fn begin_upload(
    proxy: &ProxyClient,
    token: &UploadToken,
    format: Option<ChosenFormat>,
    marks: &[PrefixCrc],
) -> Result<BegunUpload, UploadRequestError> {
    let named = HeaderValue::from_static(CHECKSUM_NAME);
    let mut headers = vec![bearer_header(token), TUS, LATER, (CHECKSUM, named)];
    headers.extend(format_header(format));
    let marks: Vec<String> = marks.iter().map(PrefixCrc::to_string).collect();
    if !marks.is_empty()
        && let Ok(marks) = HeaderValue::from_str(&marks.join(","))
    {
        headers.push((HeaderName::from_static(MARKS_HEADER), marks));
    }
    match send_empty(proxy, Method::POST, RESUMABLE, &headers).await {
        Ok(answer) => {
            let Some(location) = answer.headers.get(header::LOCATION) else {
                return Ok(BegunUpload::NotHere);
            };
            let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
            let location = UploadLocation::try_from(location).map_err(UploadRequestError::Ended)?;
            Ok(BegunUpload::At(location, kept_as_said(&answer)))
        }
        Err(UploadRequestError::Missing) => Ok(BegunUpload::NotHere),
        Err(trouble) => Err(trouble),
    }
}

/// Asks which part the server has kept. Returns `None` if the server is still looking for it.
pub(crate) async fn query_kept(
    proxy: &ProxyClient,
    token: &UploadToken,
    location: &UploadLocation,
) -> Result<Option<KeptPrefix>, UploadRequestError> {
    Ok(kept_as_said(&send_head(proxy, token, location).await?))
}

async fn send_head(
    proxy: &ProxyClient,
    token: &UploadToken,
    location: &UploadLocation,
) -> Result<ProxyResponse, UploadRequestError> {
    let headers = [bearer_header(token), TUS];
    send_empty(proxy, Method::HEAD, location.as_str(), &headers).await
}

/// Parses the header that states which part the server has kept. Returns `None` if the server has
/// not determined it yet. If the header is missing, the server does not support marks, and the
/// empty prefix is returned.
fn kept_as_said(answer: &ProxyResponse) -> Option<KeptPrefix> {
    let name = HeaderName::from_static(KEPT_HEADER);
    if answer.headers.get(&name).is_some_and(|value| value == KEPT_LATER) {
        return None;
    }
    Some(KeptPrefix::ending_at(answer.header_number(&name).unwrap_or(0)))
}

/// Asks how many bytes the server has, and whether these are all bytes.
pub(crate) async fn query_progress(
    proxy: &ProxyClient,
    token: &UploadToken,
    location: &UploadLocation,
) -> Result<(u64, bool), UploadRequestError> {
    let answer = send_head(proxy, token, location).await?;
    match answer.header_number(&OFFSET) {
        Some(offset) => Ok((offset, answer.header_number(&LENGTH) == Some(offset))),
        None => Err(UploadRequestError::Missing),
    }
}

/// Sends the bytes of the stream, starting at `offset`. Returns how many bytes the server has
/// afterwards.
pub(crate) async fn append_bytes<B>(
    proxy: &ProxyClient,
    token: &UploadToken,
    location: &UploadLocation,
    offset: u64,
    bytes: B,
) -> Result<u64, UploadRequestError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let headers = [bearer_header(token), TUS, (OFFSET, offset.into()), PART];
    let answer = send_request(proxy, Method::PATCH, location.as_str(), &headers, bytes).await?;
    answer.header_number(&OFFSET).ok_or(UploadRequestError::Missing)
}

/// Completes the upload by sending the length of the stream and its checksum. The response arrives
/// when the disk is complete.
pub(crate) async fn finish_upload(
    proxy: &ProxyClient,
    token: &UploadToken,
    location: &UploadLocation,
    total: u64,
    checksum: &str,
) -> Result<(), UploadRequestError> {
    let mut headers =
        vec![bearer_header(token), TUS, (OFFSET, total.into()), (LENGTH, total.into()), PART];
    if let Ok(checksum) = HeaderValue::from_str(checksum) {
        headers.push((CHECKSUM, checksum));
    }
    let completing = send_empty(proxy, Method::PATCH, location.as_str(), &headers);
    completing.await.map(drop)
}

/// Returns the `Authorization` header with a token, marked as sensitive.
pub(crate) fn bearer_header(token: &UploadToken) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::from_str(&format!("Bearer {}", token.as_str()));
    let mut value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    (header::AUTHORIZATION, value)
}

/// Sends a request without a body and checks the status of the response.
pub(crate) async fn send_empty(
    proxy: &ProxyClient,
    method: Method,
    path: &str,
    headers: &[(HeaderName, HeaderValue)],
) -> Result<ProxyResponse, UploadRequestError> {
    send_request(proxy, method, path, headers, Empty::<Bytes>::new()).await
}

/// Sends a request and checks the status of the response.
pub(crate) async fn send_request<B>(
    proxy: &ProxyClient,
    method: Method,
    path: &str,
    headers: &[(HeaderName, HeaderValue)],
    body: B,
) -> Result<ProxyResponse, UploadRequestError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match proxy.send_request(method, path, headers, body).await {
        Ok(answer) => check_status(answer, proxy.display_url()),
        Err(NoResponseError::UnknownIssuer(cause) | NoResponseError::InvalidCertificate(cause)) => {
            Err(proxy.untrusted_error(&cause).into())
        }
        Err(lost) => Err(PluginError::passing(lost.to_string()).into()),
    }
}

fn check_status(answer: ProxyResponse, url: &str) -> Result<ProxyResponse, UploadRequestError> {
    let words = || match answer.words.as_str() {
        "" => format!("the server answers {}, at {url}", answer.status),
        words => words.to_owned(),
    };
    match answer.status {
        status if status.is_success() => Ok(answer),
        StatusCode::UNAUTHORIZED => Err(UploadRequestError::Unauthorized),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Err(UploadRequestError::Missing),
        StatusCode::GONE => Err(UploadRequestError::Ended(words())),
        // Temporary failures: the server expects another offset, another request still holds the
        // upload, there are too many uploads, or a proxy or a pod is restarting.
        StatusCode::CONFLICT if answer.headers.contains_key(OFFSET) => {
            Err(PluginError::passing(words()).into())
        }
        StatusCode::LOCKED
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(PluginError::passing(words()).into()),
        StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            Err(UploadRequestError::Refused(words()))
        }
        _ => Err(PluginError::target(format!("the upload has failed: {}", words())).into()),
    }
}
