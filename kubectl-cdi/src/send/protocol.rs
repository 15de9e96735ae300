//! The requests of an upload that can be continued (docs/uploadserver.md, "Resuming"), and the meaning of their answers.

use bytes::Bytes;
use datapath::disk::Mark;
use datapath::error::NoThread;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Body;
use program::cdi::{CHECKSUM_HEADER, KEPT_HEADER, KEPT_LATER, MARKS_HEADER, RESUMABLE};

use super::connection::{Answer, Lost, Proxy};
use super::ledger::CHECKSUM_NAME;
use super::location::UploadLocation;
use crate::cluster::{ClusterError, Token};
use crate::image::{Kept, NoImage};

const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const COMPLETE: HeaderName = HeaderName::from_static("upload-complete");
const CHECKSUM: HeaderName = HeaderName::from_static(CHECKSUM_HEADER);

/// Booleans of RFC 8941.
const YES: HeaderValue = HeaderValue::from_static("?1");
const NO: HeaderValue = HeaderValue::from_static("?0");

const PART: HeaderValue = HeaderValue::from_static("application/partial-upload");

/// A request that did not do what it should.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It passes by itself: the reason, in words.
    Passing(String),
    /// The token is not good any more.
    Unauthorized,
    /// There is no such upload, or no such path.
    Missing,
    /// The server has given the upload up: why, if it says so.
    Ended(String),
    /// The upload has failed: the server's words, and whether they are about the image.
    Refused { words: String, is_image: bool },
    /// The certificate of the proxy is not trusted.
    Untrusted(String),
    /// There is no token.
    Cluster(Box<ClusterError>),
    /// The image cannot be read any more.
    Image(Box<NoImage>),
}

impl From<NoThread> for Trouble {
    fn from(error: NoThread) -> Self {
        Self::Passing(error.to_string())
    }
}

impl From<ClusterError> for Trouble {
    fn from(error: ClusterError) -> Self {
        if error.may_pass() {
            return Self::Passing(error.to_string());
        }
        Self::Cluster(Box::new(error))
    }
}

/// A begun upload, or a server that knows none that can be continued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Begun {
    /// At this path, with what the server has kept of an earlier one, if that is known yet.
    At(UploadLocation, Option<Kept>),
    NotHere,
}

/// Begins an upload, of a disk of which the server may have what the `marks` tell.
pub(crate) async fn begin(proxy: &Proxy, token: &Token, marks: &[Mark]) -> Result<Begun, Trouble> {
    let named = HeaderValue::from_static(CHECKSUM_NAME);
    let mut headers = vec![bearer(token), (COMPLETE, NO), (CHECKSUM, named)];
    let marks: Vec<String> = marks.iter().map(Mark::to_string).collect();
    if !marks.is_empty()
        && let Ok(marks) = HeaderValue::from_str(&marks.join(","))
    {
        headers.push((HeaderName::from_static(MARKS_HEADER), marks));
    }
    let answer = ask(proxy, Method::POST, RESUMABLE, &headers, Empty::<Bytes>::new()).await;
    match answer {
        Ok(answer) => {
            let Some(location) = answer.headers.get(header::LOCATION) else {
                return Ok(Begun::NotHere);
            };
            let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
            match UploadLocation::try_from(location) {
                Ok(location) => Ok(Begun::At(location, kept_as_said(&answer))),
                Err(error) => Err(Trouble::Ended(error.to_string())),
            }
        }
        Err(Trouble::Missing) => Ok(Begun::NotHere),
        Err(trouble) => Err(trouble),
    }
}

/// Asks what the server has kept; `None` if it still looks for that.
pub(crate) async fn kept(
    proxy: &Proxy,
    token: &Token,
    location: &UploadLocation,
) -> Result<Option<Kept>, Trouble> {
    let answer = head(proxy, token, location).await?;
    Ok(kept_as_said(&answer))
}

async fn head(proxy: &Proxy, token: &Token, location: &UploadLocation) -> Result<Answer, Trouble> {
    let headers = [bearer(token)];
    ask(
        proxy,
        Method::HEAD,
        location.as_str(),
        &headers,
        Empty::<Bytes>::new(),
    )
    .await
}

/// Nothing, where the server knows no marks.
fn kept_as_said(answer: &Answer) -> Option<Kept> {
    let name = HeaderName::from_static(KEPT_HEADER);
    if answer.headers.get(&name).is_some_and(|value| value == KEPT_LATER) {
        return None;
    }
    Some(Kept::before(answer.number(&name).unwrap_or(0)))
}

/// Asks how far the upload is: its bytes, and whether these are all.
pub(crate) async fn progress(
    proxy: &Proxy,
    token: &Token,
    location: &UploadLocation,
) -> Result<(u64, bool), Trouble> {
    let answer = head(proxy, token, location).await?;
    let is_complete = answer.headers.get(COMPLETE) == Some(&YES);
    match answer.number(&OFFSET) {
        Some(offset) => Ok((offset, is_complete)),
        None => Err(Trouble::Missing),
    }
}

/// Sends bytes from `offset` on.
pub(crate) async fn append<B>(
    proxy: &Proxy,
    token: &Token,
    location: &UploadLocation,
    offset: u64,
    bytes: B,
) -> Result<u64, Trouble>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let headers = [
        bearer(token),
        (OFFSET, offset.into()),
        (COMPLETE, NO),
        (header::CONTENT_TYPE, PART),
    ];
    let answer = ask(proxy, Method::PATCH, location.as_str(), &headers, bytes).await?;
    answer.number(&OFFSET).ok_or(Trouble::Missing)
}

/// Says that all `total` bytes were sent, and what their checksum is. Answered when the disk is complete.
pub(crate) async fn finish(
    proxy: &Proxy,
    token: &Token,
    location: &UploadLocation,
    total: u64,
    checksum: &str,
) -> Result<(), Trouble> {
    let mut headers = vec![
        bearer(token),
        (OFFSET, total.into()),
        (COMPLETE, YES),
        (header::CONTENT_TYPE, PART),
    ];
    if let Ok(checksum) = HeaderValue::from_str(checksum) {
        headers.push((CHECKSUM, checksum));
    }
    ask(
        proxy,
        Method::PATCH,
        location.as_str(),
        &headers,
        Empty::<Bytes>::new(),
    )
    .await
    .map(drop)
}

/// The header with a token.
pub(crate) fn bearer(token: &Token) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::from_str(&format!("Bearer {}", token.as_str()));
    let mut value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    (header::AUTHORIZATION, value)
}

/// Asks, and reads the answer's meaning.
pub(crate) async fn ask<B>(
    proxy: &Proxy,
    method: Method,
    path: &str,
    headers: &[(HeaderName, HeaderValue)],
    body: B,
) -> Result<Answer, Trouble>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match proxy.ask(method, path, headers, body).await {
        Ok(answer) => judge(answer, proxy.url()),
        Err(Lost::Untrusted(words)) => Err(Trouble::Untrusted(words)),
        Err(lost) => Err(Trouble::Passing(lost.words().to_owned())),
    }
}

fn judge(answer: Answer, url: &str) -> Result<Answer, Trouble> {
    let words = || match answer.words.as_str() {
        "" => format!("the server answers {}, at {url}", answer.status),
        words => words.to_owned(),
    };
    match answer.status {
        status if status.is_success() => Ok(answer),
        StatusCode::UNAUTHORIZED => Err(Trouble::Unauthorized),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Err(Trouble::Missing),
        StatusCode::GONE => Err(Trouble::Ended(words())),
        // The bytes belong elsewhere, another request has not let go, too many uploads, a proxy or pod that starts anew.
        StatusCode::CONFLICT if answer.headers.contains_key(OFFSET) => Err(Trouble::Passing(words())),
        StatusCode::LOCKED
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(Trouble::Passing(words())),
        status => Err(Trouble::Refused {
            words: words(),
            is_image: status == StatusCode::BAD_REQUEST,
        }),
    }
}
