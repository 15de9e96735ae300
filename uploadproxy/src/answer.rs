//! From a request to its answer.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use https::body;
use https::listener::Peer;
use https::reply;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::cors::{self, Marks};
use crate::exchange::Exchange;
use crate::figures::Figures;
use crate::forward;
use crate::heads;
use crate::limits::{Excess, Limits};
use crate::outcome::Outcome;
use crate::page;
use crate::reply_body::ReplyBody;
use crate::request_body::RequestBody;
use crate::routes::{self, Endpoint, Route};
use crate::token::{Grant, TokenRefused, Verifier};
use crate::upstream::{NoAnswer, Upstreams};
use crate::volumes::{Content, Unavailable, Volume, Volumes};

/// An answer to a client.
pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, hyper::Error>>;

/// Seconds after which to come again if there are too many uploads.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("10");

/// State that all requests share.
pub(crate) struct Proxy {
    pub(crate) verifier: Verifier,
    pub(crate) volumes: Volumes,
    pub(crate) upstreams: Upstreams,
    pub(crate) limits: Arc<Limits>,
    pub(crate) figures: Figures,
    /// Cancelled when the process is about to end.
    pub(crate) stop: CancellationToken,
}

/// Answers one request.
pub(crate) async fn answer(proxy: Arc<Proxy>, peer: Peer, request: Request<Incoming>) -> Reply {
    let mut marks = Marks::of(&request);
    if let Some(refusal) = improper(&request) {
        let mut reply = whole(reply::refuse(refusal, request, &peer));
        marks.set(&mut reply);
        return reply;
    }
    if let Some(preflight) = cors::preflight(&request) {
        return whole(preflight);
    }
    let path = request.uri().path().to_owned();
    let route = routes::find(&path);
    let precedes = precedes_a_part(route, request.method());
    let mut reply = match route {
        Route::Health => whole(reply::text(StatusCode::OK, "OK")),
        Route::Ready => whole(ready(&proxy).await),
        Route::Page(asset) if [Method::GET, Method::HEAD].contains(request.method()) => {
            whole(page::reply(asset))
        }
        Route::Upload(endpoint) => {
            marks.exposes_upload = matches!(endpoint, Endpoint::Resumable { .. });
            upload(&proxy, &peer, endpoint, request).await
        }
        Route::Page(_) | Route::Unknown => whole(reply::refuse(reply::not_found(), request, &peer)),
    };
    marks.set(&mut reply);
    if precedes {
        let close = HeaderValue::from_static("close");
        reply.headers_mut().insert(header::CONNECTION, close);
    }
    reply
}

/// The answer to what cannot be a request, from any sender.
fn improper(request: &Request<Incoming>) -> Option<reply::Reply> {
    if !heads::is_proper(request) {
        return Some(reply::empty(StatusCode::BAD_REQUEST));
    }
    let too_large = body::check(request.body()).err()?;
    let words = format!("a body of {too_large}\n");
    Some(reply::text(StatusCode::PAYLOAD_TOO_LARGE, words))
}

/// True if a browser may send a part of a resumable upload next. When a connection breaks that it has used before, Chromium
/// silently sends the request again, all of it: from an offset that is long past. On a new connection it reports the cut.
fn precedes_a_part(route: Route<'_>, method: &Method) -> bool {
    match route {
        Route::Page(_) => true,
        Route::Upload(Endpoint::Resumable { .. }) => method != Method::PATCH,
        Route::Upload(_) | Route::Health | Route::Ready | Route::Unknown => false,
    }
}

fn whole(reply: reply::Reply) -> Reply {
    reply.map(|body| body.map_err(|never| match never {}).boxed_unsync())
}

async fn ready(proxy: &Proxy) -> reply::Reply {
    if !proxy.stop.is_cancelled() && proxy.upstreams.is_ready().await {
        reply::text(StatusCode::OK, "OK")
    } else {
        reply::text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn upload(proxy: &Proxy, peer: &Peer, endpoint: Endpoint<'_>, request: Request<Incoming>) -> Reply {
    let authorization = request.headers().get(header::AUTHORIZATION);
    let grant = match proxy.verifier.grant(authorization, SystemTime::now()) {
        Ok(grant) => grant,
        Err(refusal) => return refuse(proxy, peer, refusal, request),
    };
    tracing::info!(
        "Received valid token: pvc: {}, namespace: {}",
        grant.pvc,
        grant.namespace
    );
    let span = tracing::error_span!(
        "upload",
        namespace = grant.namespace,
        pvc = grant.pvc,
        id = endpoint.id()
    );
    let granted = granted(proxy, peer, grant, endpoint, request);
    granted.instrument(span).await
}

/// Answers a request with a valid token.
async fn granted(
    proxy: &Proxy,
    peer: &Peer,
    grant: Grant,
    endpoint: Endpoint<'_>,
    request: Request<Incoming>,
) -> Reply {
    // Limits first: to look at the PVC asks the API server, and 600 requests with one token must not be 600 questions.
    let denied = match admit(proxy, peer, grant, &request) {
        Ok(exchange) => match find(proxy, exchange.grant(), endpoint).await {
            Ok(target) => return pass(proxy, peer, &exchange, target, request).await,
            Err(denied) => {
                exchange.answered(denied.status(), denied.outcome());
                denied
            }
        },
        Err(excess) => {
            proxy.figures.count(Outcome::Limited);
            Denied::Excess(excess)
        }
    };
    tracing::error!("{denied} (from {})", peer.address);
    whole(reply::refuse(denied.reply(), request, peer))
}

/// A reason why a request with a valid token is not passed on.
#[derive(Debug, thiserror::Error)]
enum Denied {
    #[error(transparent)]
    Excess(#[from] Excess),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("only disk images can be uploaded in parts, and PVC {0} takes an archive")]
    NotForArchives(String),
}

impl Denied {
    fn status(&self) -> StatusCode {
        match self {
            Self::Excess(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotForArchives(_) => StatusCode::NOT_FOUND,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Excess(_) => Outcome::Limited,
            Self::Unavailable(_) => Outcome::NotReady,
            Self::NotForArchives(_) => Outcome::Rejected,
        }
    }

    /// The answer in words for the client; upstream's are escaped as there.
    fn reply(&self) -> reply::Reply {
        match self {
            Self::Unavailable(unavailable) => reply::text(self.status(), escape(&unavailable.to_string())),
            Self::Excess(_) => limited(format!("{self}\n")),
            Self::NotForArchives(_) => reply::text(self.status(), format!("{self}\n")),
        }
    }
}

/// The answer to an upload for which there is no room.
fn limited(words: String) -> reply::Reply {
    let mut reply = reply::text(StatusCode::TOO_MANY_REQUESTS, words);
    reply.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    reply
}

/// The answer does not tell what is wrong with a token.
fn refuse(proxy: &Proxy, peer: &Peer, refusal: TokenRefused, request: Request<Incoming>) -> Reply {
    let address = peer.address;
    match refusal {
        TokenRefused::Unsuitable(_) => tracing::error!("{refusal} (from {address})"),
        _ => tracing::debug!("refused a request from {address}: {refusal}"),
    }
    proxy.figures.count(match refusal {
        TokenRefused::Invalid(_) => Outcome::Unauthorized,
        TokenRefused::NoToken | TokenRefused::Unsuitable(_) => Outcome::BadRequest,
    });
    whole(reply::refuse(reply::empty(refusal.status()), request, peer))
}

fn admit(
    proxy: &Proxy,
    peer: &Peer,
    grant: Grant,
    request: &Request<Incoming>,
) -> Result<Arc<Exchange>, Excess> {
    let entry = proxy.limits.enter(&grant)?;
    let method = request.method().clone();
    let permit = match is_question(&method) {
        true => None,
        false => Some(proxy.limits.admit(peer.address.ip())?),
    };
    let path = request.uri().path().to_owned();
    Ok(Exchange::begin(
        grant,
        peer,
        (method, path),
        proxy.figures.clone(),
        (permit, entry),
    ))
}

/// Requests that bring nothing are not uploads.
fn is_question(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::DELETE].contains(method)
}

/// The upload server and the path there.
struct Target<'p> {
    volume: Volume,
    path: &'p str,
}

async fn find<'p>(proxy: &Proxy, grant: &Grant, endpoint: Endpoint<'p>) -> Result<Target<'p>, Denied> {
    let volume = proxy.volumes.find(grant).await?;
    let path = match volume.content {
        Content::Disk => Some(endpoint.disk_path()),
        Content::Archive => endpoint.archive_path(),
    };
    let path = path.ok_or_else(|| Denied::NotForArchives(grant.pvc.clone()))?;
    Ok(Target { volume, path })
}

/// Passes the request on, and the answer back.
async fn pass(
    proxy: &Proxy,
    peer: &Peer,
    exchange: &Arc<Exchange>,
    target: Target<'_>,
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
    let expects = expects.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    // The upload server decides whether it wants the body: a client that it refuses has sent nothing of it.
    let want = expects.then(|| body.expecting());
    let request = forward::request(parts, target.path, peer.address.ip(), place).map(|()| body);
    let sending = proxy.upstreams.send(place, request, want);
    let sent = exchange.give_up().run_until_cancelled_owned(sending).await;
    match sent.unwrap_or(Err(NoAnswer::Stalled)) {
        Ok((mut response, lease)) => {
            forward::response(&mut response);
            exchange.passed_on(response.status());
            response.map(|body| ReplyBody::new(body, lease, Arc::clone(exchange)).boxed_unsync())
        }
        Err(failure) => whole(failed(exchange, &failure)),
    }
}

fn failed(exchange: &Exchange, failure: &NoAnswer) -> reply::Reply {
    tracing::error!("{failure}");
    match failure {
        NoAnswer::Credentials(_) => {
            exchange.answered(StatusCode::INTERNAL_SERVER_ERROR, Outcome::NoCredentials);
            reply::empty(StatusCode::INTERNAL_SERVER_ERROR)
        }
        NoAnswer::Stalled => {
            exchange.answered(StatusCode::TOO_MANY_REQUESTS, Outcome::Limited);
            limited(format!("{failure}\n"))
        }
        NoAnswer::Transport(_) => {
            exchange.answered(StatusCode::BAD_GATEWAY, Outcome::Unreachable);
            reply::text(
                StatusCode::BAD_GATEWAY,
                format!("error in upload-proxy: {failure}\n"),
            )
        }
    }
}

/// Text for HTML, in the escapes of Go's `html.EscapeString`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_go_does() {
        assert_eq!(
            escape("doesn't <b>\"&\"</b>"),
            "doesn&#39;t &lt;b&gt;&#34;&amp;&#34;&lt;/b&gt;"
        );
    }

    #[test]
    fn only_what_may_bring_a_body_is_an_upload() {
        for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
            assert!(is_question(&method.parse().unwrap()));
        }
        for method in ["POST", "PUT", "PATCH", "BREW"] {
            assert!(!is_question(&method.parse().unwrap()));
        }
    }
}
