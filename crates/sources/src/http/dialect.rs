//! The manners of a kind of server: authorization, and the meaning of refusals.
//!
//! Stores, registries and oVirt's images are HTTP with other manners. With one engine below them they all resume,
//! wait, report and fail in the same way, and one contract is run against a real server of each.

use async_trait::async_trait;
use bytes::Bytes;
use datapath::error::SourceError;
use http::{HeaderMap, StatusCode, header};
use reqwest::Response;
use url::Url;

use super::cause::{RequestRoute, transport_failure};
use crate::retry::AttemptError;

/// The bytes of a refusal that are looked at: every error document of an object store or registry is shorter.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// The manners of one kind of server. Only its own origin hears them: what a redirect leads elsewhere to is asked
/// without any secret.
#[async_trait]
pub trait ServerDialect: Send + Sync {
    /// Completes a request before it is sent, with a signature or a token. May itself ask a token service.
    async fn authorize(&self, request: &mut reqwest::Request) -> Result<(), SourceError>;

    /// True if the place that a redirect leads to belongs to the same service, so that it may hear secrets too.
    fn is_same_service(&self, _to: &Url) -> bool {
        false
    }

    /// Judges an answer that is neither a success nor a redirect.
    async fn judge_refusal(&self, refusal: RefusedRequest<'_>) -> RefusalVerdict;
}

/// An answer without the object.
#[derive(Debug, Clone, Copy)]
pub struct RefusedRequest<'a> {
    /// The URL that was asked for.
    pub url: &'a Url,
    /// The status of the answer.
    pub status: StatusCode,
    /// The head of the answer.
    pub headers: &'a HeaderMap,
    /// The first 64 KiB of its body.
    pub body: &'a [u8],
}

impl RefusedRequest<'_> {
    /// True if the object is refused to this account, and not in general.
    pub fn is_about_who_asks(&self) -> bool {
        matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }
}

/// The consequence of a [`RefusedRequest`].
#[derive(Debug)]
pub enum RefusalVerdict {
    /// The meaning of the status in HTTP.
    Plain,
    /// Authorize the request anew and send it once more, to this URL if there is one. A second time in a row counts as
    /// [`RefusalVerdict::Plain`].
    Again(Option<Url>),
    /// The server's own words; trying later may help if it is transient.
    Described {
        /// One sentence.
        text: String,
        /// True if the same request may succeed later.
        transient: bool,
    },
}

/// True for what a [`ServerDialect`] is asked about. 412 and 416 are answers to our own conditions.
pub(super) fn is_refusal(response: &Response) -> bool {
    let status = response.status();
    let is_ours = matches!(status, StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE);
    let leads_elsewhere = status.is_redirection() && response.headers().contains_key(header::LOCATION);
    !status.is_success() && !is_ours && !leads_elsewhere
}

/// Asks `dialect` about a refusal; gives the answer back as it was, with as much of the body as was read.
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
        // Cut, not an error: a document that is too long to be read still leaves the status of its answer.
        let room = MAX_REFUSAL_BYTES - text.len();
        text.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    let refusal = RefusedRequest { url, status: parts.status, headers: &parts.headers, body: &text };
    let verdict = dialect.judge_refusal(refusal).await;
    let response = http::Response::from_parts(parts, Bytes::from(text));
    Ok((verdict, Response::from(response)))
}
