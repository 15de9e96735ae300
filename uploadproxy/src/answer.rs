//! Answers requests: verifies the token, applies the limits, and forwards each upload to its
//! upload server.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use https::body;
use https::listener::Peer;
use https::reply;
use hyper::body::{Body, Incoming};
use program::logging::LogThrottle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::cors::{self, CorsHeaders};
use crate::exchange::UploadExchange;
use crate::figures::ProxyMetrics;
use crate::forward;
use crate::heads;
use crate::limits::{UploadLimitError, UploadLimiter};
use crate::outcome::RequestOutcome;
use crate::page;
use crate::reply_body::ReplyBody;
use crate::request_body::RequestBody;
use crate::routes::{self, ProxyRoute, UpstreamEndpoint};
use crate::token::{TokenError, TokenVerifier, UploadGrant};
use crate::upstream::{UpstreamError, UpstreamServers};
use crate::volumes::{ClaimDirectory, UploadContent, WaitingClaim};

/// A response to a client.
pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// Seconds after which a client should retry if there are too many uploads.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

/// The response to requests that [`heads::is_proper`] rejects.
const IMPROPER: &str = "the request needs exactly one Host header, and must not be a CONNECT\n";

/// State that all requests share.
pub(crate) struct ProxyState {
    pub(crate) verifier: TokenVerifier,
    pub(crate) volumes: ClaimDirectory,
    pub(crate) upstreams: UpstreamServers,
    pub(crate) limits: Arc<UploadLimiter>,
    pub(crate) figures: ProxyMetrics,
    /// Cancelled when the process is about to exit.
    pub(crate) stop: CancellationToken,
}

/// Log lines about clients that are refused for their token.
static REFUSALS: LogThrottle = LogThrottle::new();

/// Answers one request.
pub(crate) async fn answer_request(
    proxy: Arc<ProxyState>,
    peer: Peer,
    request: Request<Incoming>,
) -> Reply {
    let mut marks = CorsHeaders::from_request(&request);
    if let Some(refusal) = reject_improper(&request) {
        let mut reply = boxed_reply(reply::refuse_body(refusal, request, &peer));
        marks.set_headers(&mut reply);
        return reply;
    }
    if let Some(preflight) = cors::preflight_reply(&request) {
        return boxed_reply(preflight);
    }
    let path = request.uri().path().to_owned();
    let route = routes::find_route(&path);
    let precedes = precedes_a_part(route, &request);
    let mut reply = match route {
        ProxyRoute::Health => boxed_reply(reply::text_reply(StatusCode::OK, "OK")),
        ProxyRoute::Ready => boxed_reply(readiness_reply(&proxy).await),
        ProxyRoute::Page(asset) if [Method::GET, Method::HEAD].contains(request.method()) => {
            boxed_reply(page::asset_reply(asset))
        }
        ProxyRoute::Upload(endpoint) => {
            marks.exposes_upload = matches!(endpoint, UpstreamEndpoint::Resumable { .. });
            answer_upload(&proxy, &peer, endpoint, request).await
        }
        ProxyRoute::Page(_) | ProxyRoute::Unknown => {
            boxed_reply(reply::refuse_body(reply::not_found(), request, &peer))
        }
    };
    marks.set_headers(&mut reply);
    if precedes {
        let close = HeaderValue::from_static("close");
        reply.headers_mut().insert(header::CONNECTION, close);
    }
    reply
}

/// Returns the response to a request that is rejected because of its form, whatever its token.
fn reject_improper(request: &Request<Incoming>) -> Option<reply::Reply> {
    if !heads::is_proper(request) {
        return Some(reply::text_reply(StatusCode::BAD_REQUEST, IMPROPER));
    }
    let too_large = body::check_length(request.body().size_hint().lower()).err()?;
    let message = format!("a body of {too_large}\n");
    Some(reply::text_reply(StatusCode::PAYLOAD_TOO_LARGE, message))
}

/// Returns true if the next request on this connection may be a part of a resumable upload from a
/// browser. If a reused connection breaks, Chromium silently sends the whole request again, from
/// an offset that is no longer current. On a new connection it reports the error instead.
fn precedes_a_part(route: ProxyRoute<'_>, request: &Request<Incoming>) -> bool {
    match route {
        ProxyRoute::Page(_) => true,
        // Clients other than browsers are excluded: they send many small parts, and each part
        // would need another handshake.
        ProxyRoute::Upload(UpstreamEndpoint::Resumable { .. }) => {
            request.method() != Method::PATCH || request.headers().contains_key(header::ORIGIN)
        }
        ProxyRoute::Upload(_) | ProxyRoute::Health | ProxyRoute::Ready | ProxyRoute::Unknown => {
            false
        }
    }
}

fn boxed_reply(reply: reply::Reply) -> Reply {
    reply.map(|body| body.map_err(|never| match never {}).boxed_unsync())
}

async fn readiness_reply(proxy: &ProxyState) -> reply::Reply {
    if !proxy.stop.is_cancelled() && proxy.upstreams.is_ready().await {
        reply::text_reply(StatusCode::OK, "OK")
    } else {
        reply::text_reply(StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn answer_upload(
    proxy: &ProxyState,
    peer: &Peer,
    endpoint: UpstreamEndpoint<'_>,
    request: Request<Incoming>,
) -> Reply {
    let authorization = request.headers().get(header::AUTHORIZATION);
    let grant = match proxy.verifier.verify_grant(authorization, SystemTime::now()) {
        Ok(grant) => grant,
        Err(refusal) => return refuse_token(proxy, peer, refusal, request),
    };
    tracing::info!("Received valid token: pvc: {}, namespace: {}", grant.pvc, grant.namespace);
    let span = tracing::error_span!(
        "upload",
        namespace = grant.namespace,
        pvc = grant.pvc,
        id = endpoint.upload_id()
    );
    let granted = answer_granted(proxy, peer, grant, endpoint, request);
    granted.instrument(span).await
}

/// Answers a request with a valid token.
async fn answer_granted(
    proxy: &ProxyState,
    peer: &Peer,
    grant: UploadGrant,
    endpoint: UpstreamEndpoint<'_>,
    request: Request<Incoming>,
) -> Reply {
    // The limits are checked first: looking up the PVC sends a request to the API server, and 600
    // requests with the same token must not cause 600 lookups.
    let (denied, answer) = match admit_upload(proxy, peer, grant, &request) {
        Ok(exchange) => match find_target(proxy, exchange.grant(), endpoint).await {
            Ok(target) => return forward_request(proxy, peer, &exchange, target, request).await,
            Err((status, reason)) => {
                let answer = denied_reply(&exchange, status, &reason);
                (reason, answer)
            }
        },
        Err(excess) => {
            proxy.figures.count_limit(excess);
            (excess.to_string(), limit_reply(format!("{excess}\n")))
        }
    };
    tracing::error!("{denied} (from {})", peer.address);
    boxed_reply(reply::refuse_body(answer, request, peer))
}

/// Returns the response to an upload that the limits allow and that is not forwarded.
fn denied_reply(exchange: &UploadExchange, status: StatusCode, reason: &str) -> reply::Reply {
    let (outcome, message) = if status == StatusCode::SERVICE_UNAVAILABLE {
        // Upstream escapes these messages for HTML, so they are escaped here too.
        (RequestOutcome::NotReady, escape_html(reason))
    } else {
        (RequestOutcome::Rejected, format!("{reason}\n"))
    };
    exchange.note_answer(status, outcome);
    reply::text_reply(status, message)
}

/// Builds the response to an upload that exceeds a limit.
fn limit_reply(message: String) -> reply::Reply {
    let mut reply = reply::text_reply(StatusCode::TOO_MANY_REQUESTS, message);
    reply.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    reply
}

fn refuse_token(
    proxy: &ProxyState,
    peer: &Peer,
    refusal: TokenError,
    request: Request<Incoming>,
) -> Reply {
    let address = peer.address;
    match refusal {
        // CDI has signed such a token, so strangers cannot fill the log with these lines.
        TokenError::Unsuitable(_) => tracing::error!("{refusal} (from {address})"),
        _ => REFUSALS.log(|omitted| {
            tracing::info!(omitted, "refused a request from {address}: {refusal}");
        }),
    }
    proxy.figures.count_outcome(match refusal {
        TokenError::Invalid(_) => RequestOutcome::Unauthorized,
        TokenError::NoToken | TokenError::Unsuitable(_) => RequestOutcome::BadRequest,
    });
    let answer = reply::text_reply(refusal.status_code(), refusal.advice());
    boxed_reply(reply::refuse_body(answer, request, peer))
}

fn admit_upload(
    proxy: &ProxyState,
    peer: &Peer,
    grant: UploadGrant,
    request: &Request<Incoming>,
) -> Result<Arc<UploadExchange>, UploadLimitError> {
    // The limit of the PVC is checked first: a request that exceeds it must not cause another
    // upload to be cancelled, which `admit_upload` may do to make room.
    let entry = proxy.limits.enter_request(&grant)?;
    let method = request.method().clone();
    // Requests without a body need no permit, so that clients can query their uploads even while
    // all slots are taken.
    let permit = if is_question(&method) {
        None
    } else {
        Some(proxy.limits.admit_upload(peer.address.ip())?)
    };
    let path = request.uri().path().to_owned();
    Ok(UploadExchange::begin_exchange(
        grant,
        peer,
        (method, path),
        proxy.figures.clone(),
        (permit, entry),
    ))
}

/// Returns true for methods without a body. Such requests only ask about uploads.
fn is_question(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::DELETE].contains(method)
}

/// The upload server that receives a request, and the path on that server.
struct UploadTarget {
    volume: WaitingClaim,
    path: Uri,
}

async fn find_target(
    proxy: &ProxyState,
    grant: &UploadGrant,
    endpoint: UpstreamEndpoint<'_>,
) -> Result<UploadTarget, (StatusCode, String)> {
    // The status is 503 whatever the reason, as in CDI's proxy (contract §3.6).
    let unavailable = |reason| (StatusCode::SERVICE_UNAVAILABLE, reason);
    let volume = proxy.volumes.find_volume(grant).await.map_err(unavailable)?;
    let path = match volume.content {
        UploadContent::Disk => Some(endpoint.disk_path()),
        UploadContent::Archive => endpoint.archive_path(),
    };
    let refused = |reason| (StatusCode::NOT_FOUND, reason);
    let path = path.ok_or_else(|| {
        let pvc = &grant.pvc;
        refused(format!(
            "only disk images can be uploaded in parts, but PVC {pvc} expects an archive"
        ))
    })?;
    let path: Result<Uri, _> = path.parse();
    let path =
        path.map_err(|error| refused(format!("the upload server has no such path: {error}")))?;
    Ok(UploadTarget { volume, path })
}

/// Forwards the request to the upload server, and returns its response to the client.
async fn forward_request(
    proxy: &ProxyState,
    peer: &Peer,
    exchange: &Arc<UploadExchange>,
    target: UploadTarget,
    request: Request<Incoming>,
) -> Reply {
    let place = &target.volume.place;
    tracing::debug!(
        "Method: {} to: https://{}:{}{}",
        request.method(),
        place.host,
        place.port,
        target.path
    );
    let (parts, body) = request.into_parts();
    let mut body = RequestBody::new(body, Arc::clone(exchange));
    let expects = parts.headers.get(header::EXPECT);
    let expects =
        expects.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    // The upload server decides whether it wants the body. If it rejects the request, the client
    // has sent none of the body.
    let want = expects.then(|| body.hold_until_wanted());
    let request =
        forward::upstream_request(parts, target.path, peer.address.ip(), place).map(|()| body);
    let sending = proxy.upstreams.send_request(place, request, want);
    let sent = exchange.give_up().run_until_cancelled_owned(sending).await;
    match sent.unwrap_or(Err(UpstreamError::Stalled)) {
        Ok((mut response, lease)) => {
            forward::client_response(&mut response);
            exchange.passed_on(response.status());
            response.map(|body| ReplyBody::new(body, lease, Arc::clone(exchange)).boxed_unsync())
        }
        Err(failure) => boxed_reply(failure_reply(exchange, &failure)),
    }
}

fn failure_reply(exchange: &UploadExchange, failure: &UpstreamError) -> reply::Reply {
    tracing::error!("{failure}");
    match failure {
        UpstreamError::Credentials(_) => {
            // CDI's proxy answers 500 here (contract §3.7).
            exchange.note_answer(StatusCode::INTERNAL_SERVER_ERROR, RequestOutcome::NoCredentials);
            let message = "the proxy cannot read its own certificates: an administrator has to check its log\n";
            reply::text_reply(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
        UpstreamError::Stalled => {
            exchange.note_answer(StatusCode::TOO_MANY_REQUESTS, RequestOutcome::Limited);
            limit_reply(format!("{failure}\n"))
        }
        UpstreamError::Handshake(_) | UpstreamError::Transport(_) => {
            // CDI's proxy answers 502 with these words (contract §3.8).
            exchange.note_answer(StatusCode::BAD_GATEWAY, RequestOutcome::Unreachable);
            reply::text_reply(
                StatusCode::BAD_GATEWAY,
                format!("error in upload-proxy: {failure}\n"),
            )
        }
    }
}

/// Escapes text for HTML in the same way as Go's `html.EscapeString`.
fn escape_html(text: &str) -> String {
    // The ampersand comes first, because the other escapes contain one.
    let escapes = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('\'', "&#39;"), ('"', "&#34;")];
    escapes.iter().fold(text.to_owned(), |text, (letter, escape)| text.replace(*letter, escape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_go_does() {
        assert_eq!(
            escape_html("doesn't <b>\"&\"</b>"),
            "doesn&#39;t &lt;b&gt;&#34;&amp;&#34;&lt;/b&gt;"
        );
    }

    #[test]
    fn only_methods_with_a_body_are_uploads() {
        for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
            assert!(is_question(&method.parse().unwrap()));
        }
        for method in ["POST", "PUT", "PATCH", "BREW"] {
            assert!(!is_question(&method.parse().unwrap()));
        }
    }
}
