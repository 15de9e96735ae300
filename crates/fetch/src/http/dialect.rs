//! Dialects of HTTP: how a kind of server authorises requests, and what its refusals mean.
//!
//! Object stores, registries and oVirt's image servers use HTTP with additional rules. They share
//! one engine, so all of them resume, wait, report and fail in the same way, and the same contract
//! tests run against a real server of each.

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use reqwest::Response;
use stream::error::{SourceAdvice, SourceError};
use url::Url;

use super::cause::{RequestRoute, transport_failure};
use crate::retry::AttemptError;

/// Longest part of a refusal's body that is read. Every error document of an object store or
/// registry is shorter.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// The rules of one kind of server. They apply only to the service's own origins: after a redirect
/// elsewhere, requests carry no secrets.
#[async_trait]
pub trait ServerDialect: Send + Sync {
    /// Adds a signature or a token to a request before it is sent. May itself send a request to a
    /// token service.
    async fn authorize(&self, request: &mut reqwest::Request) -> Result<(), SourceError>;

    /// True if the target of a redirect belongs to the same service, so that secrets may be sent
    /// to it too.
    fn is_same_service(&self, _to: &Url) -> bool {
        false
    }

    /// Interprets a response that is neither a success nor a redirect.
    async fn judge_refusal(&self, refusal: RefusedRequest<'_>) -> RefusalVerdict;
}

/// A response without the object.
#[derive(Debug, Clone, Copy)]
pub struct RefusedRequest<'a> {
    /// The URL that was requested.
    pub url: &'a Url,
    /// The status of the response.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: &'a HeaderMap,
    /// The first 64 KiB of the body.
    pub body: &'a [u8],
}

impl RefusedRequest<'_> {
    /// True if access is refused to this account, not in general.
    pub fn is_about_who_asks(&self) -> bool {
        matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }
}

/// The consequence of a [`RefusedRequest`].
#[derive(Debug)]
pub enum RefusalVerdict {
    /// The status has its usual meaning in HTTP.
    Plain,
    /// Authorise the request again and send it once more, to this URL if there is one. A second
    /// such verdict in a row counts as [`RefusalVerdict::Plain`].
    Again(Option<Url>),
    /// A description of the refusal, usually from the server; a retry may help if it is transient.
    Described {
        /// The description, one sentence.
        text: String,
        /// True if the same request may succeed later.
        transient: bool,
        /// Advice for the user.
        advice: Option<SourceAdvice>,
    },
}

/// True for responses that a [`ServerDialect`] interprets. 412 and 416 are excluded, because they
/// are responses to our own conditions.
pub(super) fn is_refusal(response: &Response) -> bool {
    let status = response.status();
    let is_ours =
        matches!(status, StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE);
    let leads_elsewhere =
        status.is_redirection() && response.headers().contains_key(header::LOCATION);
    !status.is_success() && !is_ours && !leads_elsewhere
}

/// Asks `dialect` about a refusal. Also returns the response, with the part of its body that was
/// read.
pub(super) async fn judge_response(
    dialect: &dyn ServerDialect,
    url: &Url,
    response: Response,
    route: &RequestRoute,
) -> Result<(RefusalVerdict, Response), AttemptError> {
    let (parts, body) = http::Response::<reqwest::Body>::from(response).into_parts();
    let mut rest = Response::from(http::Response::new(body));
    let mut text = Vec::new();
    let failed = |error| transport_failure(error, route);
    while text.len() < MAX_REFUSAL_BYTES
        && let Some(chunk) = rest.chunk().await.map_err(failed)?
    {
        // A document that is too long is truncated without an error, because the status of the
        // response remains useful.
        let room = MAX_REFUSAL_BYTES - text.len();
        text.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    let refusal =
        RefusedRequest { url, status: parts.status, headers: &parts.headers, body: &text };
    let verdict = dialect.judge_refusal(refusal).await;
    let response = http::Response::from_parts(parts, Bytes::from(text));
    Ok((verdict, Response::from(response)))
}
