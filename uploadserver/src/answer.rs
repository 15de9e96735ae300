//! Answers requests. It performs the same checks as CDI's upload server, in the same order.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode};
use https::listener::{ActiveGuard, Peer};
use hyper::body::{Body, Incoming};
use program::cdi::{ENCODING_HEADER, UPLOAD, ZSTD};
use program::logging::{LogThrottle, POD_LINES};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::form;
use crate::intake::UploadIntake;
use crate::payload::{self, BodyEnd, RequestPayload};
use crate::refusal::RequestRefusal;
use crate::reply::{self, Reply};
use crate::request::{UploadRequest, WholeUpload};
use crate::resumable;
use crate::routes::{self, ServerRoute, UploadEndpoint};
use crate::server::UploadServer;
use crate::status;

/// Log lines about clients that are refused for their certificate or method.
static REFUSALS: LogThrottle = LogThrottle::new();

/// Answers one request.
pub(crate) async fn answer(
    server: Arc<UploadServer>,
    peer: Peer,
    request: Request<Incoming>,
) -> Reply {
    let path = request.uri().path().to_owned();
    match routes::find_route(&path) {
        ServerRoute::Health => reply::text_reply(StatusCode::OK, "OK"),
        ServerRoute::Metrics => status::metrics_reply(&server),
        ServerRoute::Status if server.config.access.allows(&peer) => status::status_reply(&server),
        ServerRoute::Status => reply::empty_reply(StatusCode::UNAUTHORIZED),
        ServerRoute::Upload(endpoint)
            if !endpoint.is_resumable() || !server.config.resume.is_zero() =>
        {
            upload(&server, &peer, endpoint, request).await
        }
        ServerRoute::Upload(_) | ServerRoute::Unknown => {
            let reply = if server.config.is_pod {
                reply::not_found()
            } else {
                let sentence = format!("404 page not found: upload to {UPLOAD}\n");
                reply::text_reply(StatusCode::NOT_FOUND, sentence)
            };
            reply::refuse_body(reply, request, &peer)
        }
    }
}

/// Answers a request to an upload path. If nothing reads its body, the body is drained.
async fn upload(
    server: &Arc<UploadServer>,
    peer: &Peer,
    endpoint: UploadEndpoint<'_>,
    request: Request<Incoming>,
) -> Reply {
    let size = request.body().size_hint();
    let asked = UploadRequest::read(endpoint, request.method(), request.headers(), &size);
    let mut request = Some(request);
    let mut reply = match perform(server, peer, endpoint, asked, &mut request).await {
        Ok(reply) => reply,
        Err(refusal) => {
            server.figures.refusals.add(1);
            if matches!(refusal, RequestRefusal::Client | RequestRefusal::Method(_)) {
                REFUSALS.log(|omitted| {
                    tracing::warn!(omitted, "refused a request from {}: {refusal}", peer.address);
                });
            }
            refusal.reply(endpoint.is_resumable())
        }
    };
    if endpoint.is_resumable() {
        resumable::mark_reply(&mut reply);
    }
    match request {
        Some(request) => reply::refuse_body(reply, request, peer),
        None => reply,
    }
}

/// Performs the action that a request asks for, if the request passes the checks of CDI's upload
/// server. The checks are made in CDI's order.
async fn perform(
    server: &Arc<UploadServer>,
    peer: &Peer,
    endpoint: UploadEndpoint<'_>,
    asked: Result<UploadRequest<'_>, RequestRefusal>,
    request: &mut Option<Request<Incoming>>,
) -> Result<Reply, RequestRefusal> {
    // As in CDI's server, methods are checked before clients, and any client may send HEAD
    // (contract §2.4).
    let is_open = matches!(
        asked,
        Ok(UploadRequest::Presence { .. } | UploadRequest::Capabilities)
            | Err(RequestRefusal::Method(_))
    );
    if !is_open && !server.config.access.allows(peer) {
        return Err(RequestRefusal::Client);
    }
    if !is_open {
        // This client is allowed to upload, so its connection must not be evicted before it gets
        // the response.
        peer.hold_active();
        // A request that continues an upload must not end that upload to make room for another
        // one.
        if !matches!(endpoint, UploadEndpoint::Continuation(_)) {
            server.make_way().await?;
        }
    }
    match asked? {
        UploadRequest::Presence { asks_encodings } => Ok(presence(asks_encodings)),
        UploadRequest::Capabilities => Ok(resumable::capabilities()),
        UploadRequest::Whole(asked) => begin(server, peer, asked, request).await,
        UploadRequest::Begin(plan, part) => {
            resumable::create(server, peer, plan, part, request).await
        }
        UploadRequest::Append(id, part) => {
            resumable::append(server, peer, &server.find_resumable(id)?, part, request).await
        }
        UploadRequest::Progress(id) => resumable::head(&*server.find_resumable(id)?).await,
        UploadRequest::End(id) => Ok(resumable::end(&*server.find_resumable(id)?).await),
    }
}

/// Begins an upload that is sent in one request, and waits for its end.
async fn begin(
    server: &Arc<UploadServer>,
    peer: &Peer,
    asked: WholeUpload,
    request: &mut Option<Request<Incoming>>,
) -> Result<Reply, RequestRefusal> {
    tracing::info!(target: POD_LINES, "Content type header is {:?}", asked.content_type);
    let (job, intake) = server.begin_upload(asked.plan)?;
    if let Some(request) = request.take() {
        let (stall, engagement) = (server.config.stall, peer.hold_active());
        // This runs in its own task: bytes already taken from the client must not be lost when the
        // connection breaks and the handler is dropped.
        tokio::spawn(receive(request.into_body(), asked.boundary, intake, stall, engagement));
    }
    Ok(reply::outcome_reply(&job).await)
}

/// Answers a client that asks whether this is an upload server. If the client asks for encodings,
/// as our own cloner does, the response lists them.
fn presence(asks_encodings: bool) -> Reply {
    let mut reply = reply::empty_reply(StatusCode::OK);
    if asks_encodings {
        let encodings = HeaderValue::from_static(ZSTD);
        reply.headers_mut().insert(ENCODING_HEADER, encodings);
    }
    reply
}

/// Feeds a whole body into an upload.
async fn receive(
    body: Incoming,
    boundary: Option<String>,
    mut intake: UploadIntake,
    stall: Duration,
    engagement: ActiveGuard,
) {
    let mut payload = match boundary {
        None => RequestPayload::from_body(body, engagement),
        Some(boundary) => {
            match timeout(stall, form::open_file_field(body, boundary, engagement)).await {
                Ok(Ok(file)) => RequestPayload::Form(Box::new(file)),
                Ok(Err(error)) => return intake.break_off(error.into()).await,
                Err(_) => return intake.break_off(payload::stall_error(stall)).await,
            }
        }
    };
    match payload::feed_intake(&mut payload, &mut intake, stall, &CancellationToken::new()).await {
        BodyEnd::Whole(checksum) => intake.finish_body(checksum).await,
        BodyEnd::Broken(error) => intake.break_off(error).await,
        BodyEnd::Unwanted | BodyEnd::Replaced => {}
    }
    payload.drain_rest();
}
