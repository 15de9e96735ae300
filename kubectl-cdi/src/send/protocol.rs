//! The requests of a resumable upload (docs/use/upload.md, "Resuming"), and the interpretation of
//! their responses.

use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{Either, Empty};
use program::cdi::{CHECKSUM_HEADER, KEPT_HEADER, KEPT_LATER, MARKS_HEADER, RESUMABLE};
use stream::error::ThreadStartError;
use stream::options::FORMAT_HEADER;
use stream::prefix_crc::PrefixCrc;

use super::UploadTask;
use super::connection::{NoResponseError, ProxyResponse};
use super::ledger::CHECKSUM_NAME;
use super::location::UploadLocation;
use super::upload_body::UploadBody;
use crate::error::PluginError;
use crate::image::KeptPrefix;

const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
const CHECKSUM: HeaderName = HeaderName::from_static(CHECKSUM_HEADER);

/// The header with the version of tus (<https://tus.io/protocols/resumable-upload>).
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

impl UploadTask<'_> {
    /// Begins an upload. `marks` are checksums of prefixes of the disk that the server may already
    /// have. Returns the path of the upload, and the part that the server has kept from an earlier
    /// upload if the server has determined it already. Returns `None` if resumable uploads are not
    /// supported here.
    pub(super) async fn begin_upload(
        &self,
        marks: &[PrefixCrc],
    ) -> Result<Option<(UploadLocation, Option<KeptPrefix>)>, UploadRequestError> {
        let mut headers = vec![TUS, LATER, (CHECKSUM, HeaderValue::from_static(CHECKSUM_NAME))];
        headers.extend(self.format_header());
        let marks: Vec<String> = marks.iter().map(PrefixCrc::to_string).collect();
        if !marks.is_empty()
            && let Ok(marks) = HeaderValue::from_str(&marks.join(","))
        {
            headers.push((HeaderName::from_static(MARKS_HEADER), marks));
        }
        let answer = match self.send_request(Method::POST, RESUMABLE, headers, None).await {
            Err(UploadRequestError::Missing) => return Ok(None),
            answer => answer?,
        };
        let Some(location) = answer.headers.get(header::LOCATION) else {
            return Ok(None);
        };
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        let location = UploadLocation::try_from(location).map_err(UploadRequestError::Ended)?;
        Ok(Some((location, kept_as_said(&answer))))
    }

    /// Asks how many bytes the server has, and whether these are all bytes.
    pub(super) async fn query_progress(
        &self,
        location: &UploadLocation,
    ) -> Result<(u64, bool), UploadRequestError> {
        let answer = self.send_head(location).await?;
        let offset = answer.header_number(&OFFSET).ok_or(UploadRequestError::Missing)?;
        Ok((offset, answer.header_number(&LENGTH) == Some(offset)))
    }

    /// Asks for the state of the upload.
    pub(super) async fn send_head(
        &self,
        location: &UploadLocation,
    ) -> Result<ProxyResponse, UploadRequestError> {
        self.send_request(Method::HEAD, location.as_str(), vec![TUS], None).await
    }

    /// Sends the bytes of the stream, starting at `offset`. Returns how many bytes the server has
    /// afterwards.
    pub(super) async fn append_bytes(
        &self,
        location: &UploadLocation,
        offset: u64,
        bytes: Option<UploadBody>,
    ) -> Result<u64, UploadRequestError> {
        let headers = vec![TUS, (OFFSET, offset.into()), PART];
        let path = location.as_str();
        let answer = self.send_request(Method::PATCH, path, headers, bytes).await?;
        answer.header_number(&OFFSET).ok_or(UploadRequestError::Missing)
    }

    /// Completes the upload by sending the length of the stream and its checksum. The response
    /// arrives when the disk is complete.
    pub(super) async fn finish_upload(
        &self,
        location: &UploadLocation,
        total: u64,
        checksum: &str,
    ) -> Result<(), UploadRequestError> {
        let mut headers = vec![TUS, (OFFSET, total.into()), (LENGTH, total.into()), PART];
        if let Ok(checksum) = HeaderValue::from_str(checksum) {
            headers.push((CHECKSUM, checksum));
        }
        let path = location.as_str();
        self.send_request(Method::PATCH, path, headers, None).await.map(drop)
    }

    /// Sends a request with a token, and checks the status of the response.
    pub(super) async fn send_request(
        &self,
        method: Method,
        path: &str,
        mut headers: Vec<(HeaderName, HeaderValue)>,
        body: Option<UploadBody>,
    ) -> Result<ProxyResponse, UploadRequestError> {
        let token = self.tokens.current_token().await?;
        let bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
        let mut bearer = bearer.unwrap_or_else(|_| HeaderValue::from_static(""));
        bearer.set_sensitive(true);
        headers.push((header::AUTHORIZATION, bearer));
        let body = body.map_or_else(|| Either::Right(Empty::new()), Either::Left);
        match self.proxy.send_request(method, path, headers, body).await {
            Ok(answer) => check_status(answer, self.proxy.display_url()),
            Err(
                NoResponseError::UnknownIssuer(words) | NoResponseError::InvalidCertificate(words),
            ) => Err(self.proxy.untrusted_error(&words).into()),
            Err(lost) => Err(PluginError::passing(lost.to_string()).into()),
        }
    }

    /// Returns the header that states the format of the image, if the server need not detect it.
    pub(super) fn format_header(&self) -> Option<(HeaderName, HeaderValue)> {
        let format = self.image.stated_format(self.is_encoded())?;
        let name = HeaderName::from_static(FORMAT_HEADER);
        Some((name, HeaderValue::from_static(format.name())))
    }
}

/// Parses the header that states which part the server has kept. Returns `None` if the server has
/// not determined it yet. If the header is missing, the server does not support marks, and the
/// empty prefix is returned.
pub(super) fn kept_as_said(answer: &ProxyResponse) -> Option<KeptPrefix> {
    let name = HeaderName::from_static(KEPT_HEADER);
    if answer.headers.get(&name).is_some_and(|value| value == KEPT_LATER) {
        return None;
    }
    Some(KeptPrefix::ending_at(answer.header_number(&name).unwrap_or(0)))
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
