//! From a request to its answer: the checks of CDI's upload server, in their order.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use https::listener::{ActiveGuard, Peer};
use hyper::body::{Body, Incoming};
use program::cdi::{CHECKSUM_HEADER, CONTENT_HEADER, DEVICE_CLONE, ENCODING_HEADER, FILES_CLONE, ZSTD};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::checksum::{self, AnnouncedChecksum};
use crate::failure::UploadError;
use crate::form;
use crate::intake::UploadIntake;
use crate::job::{BodyContent, CloneWrapping, UploadPlan};
use crate::payload::{self, BodyEnd, RequestPayload};
use crate::reply::{self, Reply};
use crate::representation::{self, CodingOwner};
use crate::resumable;
use crate::routes::{self, ServerRoute, UploadEndpoint};
use crate::server::UploadServer;
use crate::status;

/// Answers one request.
pub(crate) async fn answer(server: Arc<UploadServer>, peer: Peer, request: Request<Incoming>) -> Reply {
    let path = request.uri().path().to_owned();
    match routes::find_route(&path) {
        ServerRoute::Health => reply::text_reply(StatusCode::OK, "OK"),
        ServerRoute::Metrics => status::metrics_reply(&server),
        ServerRoute::Status if server.config.access.allows(&peer) => status::status_reply(&server),
        ServerRoute::Status => reply::empty_reply(StatusCode::UNAUTHORIZED),
        ServerRoute::Upload(endpoint) => upload(&server, &peer, endpoint, request).await,
        ServerRoute::Resumable => resumable::create(&server, &peer, request).await,
        ServerRoute::Resume(id) => resumable::resume(&server, &peer, id, request).await,
        ServerRoute::Unknown => reply::refuse_body(reply::not_found(), request, &peer),
    }
}

async fn upload(
    server: &Arc<UploadServer>,
    peer: &Peer,
    endpoint: UploadEndpoint,
    request: Request<Incoming>,
) -> Reply {
    if request.method() == Method::HEAD && endpoint.is_async {
        return presence(&request);
    }
    if request.method() != Method::POST {
        return reply::refuse_body(reply::empty_reply(StatusCode::NOT_FOUND), request, peer);
    }
    if !server.config.access.allows(peer) {
        return reply::refuse_body(reply::empty_reply(StatusCode::UNAUTHORIZED), request, peer);
    }
    // The client is the right one: its connection is not closed for another before it has its answer.
    let engagement = peer.hold_active();
    if let Err(refusal) = server.make_way().await {
        return reply::refuse_body(reply::occupied_reply(refusal), request, peer);
    }
    let content_type = request.headers().get(CONTENT_HEADER);
    let content_type = content_type.map_or("", |value| value.to_str().unwrap_or_default());
    tracing::info!("Content type header is {content_type:?}");
    let (plan, boundary) = match plan(endpoint, &request) {
        Ok(plan) => plan,
        Err(failure) => {
            tracing::error!("{}", failure.sentence);
            return reply::refuse_body(reply::failure_reply(&failure), request, peer);
        }
    };
    let (job, intake) = match server.begin_upload(plan) {
        Ok(begun) => begun,
        Err(refusal) => return reply::refuse_body(reply::occupied_reply(refusal), request, peer),
    };
    let stall = server.config.stall;
    // A task of its own: what it has taken from the client must not be lost when the connection breaks.
    tokio::spawn(receive(request.into_body(), boundary, intake, stall, engagement));
    reply::outcome_reply(&job).await
}

/// The answer to a client that asks whether there is an upload server; to a cloner of ours also that it is one of ours.
fn presence(request: &Request<Incoming>) -> Reply {
    let mut reply = reply::empty_reply(StatusCode::OK);
    if request.headers().contains_key(ENCODING_HEADER) {
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
        Some(boundary) => match timeout(stall, form::open_file_field(body, boundary, engagement)).await {
            Ok(Ok(file)) => RequestPayload::Form(Box::new(file)),
            Ok(Err(error)) => return intake.break_off(error.into()).await,
            Err(_) => return intake.break_off(payload::stall_error(stall)).await,
        },
    };
    match payload::feed_intake(&mut payload, &mut intake, stall, &CancellationToken::new()).await {
        BodyEnd::Whole(checksum) => intake.finish_body(checksum).await,
        BodyEnd::Broken(error) => intake.break_off(error).await,
        BodyEnd::Unwanted | BodyEnd::Replaced => {}
    }
    payload.drain_rest();
}

/// The plan of the request; with the boundary of its form.
fn plan(
    endpoint: UploadEndpoint,
    request: &Request<Incoming>,
) -> Result<(UploadPlan, Option<String>), UploadError> {
    let headers = request.headers();
    let bad = |reason: String| UploadError::new(StatusCode::BAD_REQUEST, reason);
    let content = content(endpoint, headers).map_err(bad)?;
    let coded = match endpoint.is_form || content.is_clone() {
        true => CodingOwner::Wrapped,
        false => CodingOwner::Object,
    };
    representation::check(request, coded)?;
    if content.is_clone() && endpoint.is_async {
        return Err(UploadError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "async clone not supported",
        ));
    }
    let boundary = endpoint
        .is_form
        .then(|| form::form_boundary(headers))
        .transpose()
        .map_err(|error| bad(error.to_string()))?;
    let promise = checksum::promised(headers, endpoint.is_form).map_err(|error| bad(error.to_string()))?;
    if promise == AnnouncedChecksum::None && content.is_clone_in(CloneWrapping::Zstd) {
        // Frames of zstd do not tell whether others should follow them.
        return Err(bad(format!("a clone in {ZSTD} needs {CHECKSUM_HEADER}")));
    }
    let plan = UploadPlan {
        content,
        is_async: endpoint.is_async,
        // The length of a form is not that of its file.
        total: request.body().size_hint().exact().filter(|_| !endpoint.is_form),
        promise,
        is_resumable: false,
        marks: Vec::new(),
    };
    Ok((plan, boundary))
}

fn content(endpoint: UploadEndpoint, headers: &HeaderMap) -> Result<BodyContent, String> {
    let value = |name| headers.get(name).map(|value: &HeaderValue| value.as_bytes());
    let encoding = value(ENCODING_HEADER);
    let wrapping = match encoding {
        None => CloneWrapping::Snappy,
        Some(encoding) if encoding == ZSTD.as_bytes() => CloneWrapping::Zstd,
        Some(other) => {
            let other = other.escape_ascii();
            return Err(format!(
                "a clone in \"{other}\" is not understood: {ENCODING_HEADER} may be {ZSTD}"
            ));
        }
    };
    let content = match value(CONTENT_HEADER) {
        _ if endpoint.is_archive => BodyContent::Archive,
        Some(content) if content == DEVICE_CLONE.as_bytes() => BodyContent::DeviceClone(wrapping),
        Some(content) if content == FILES_CLONE.as_bytes() => BodyContent::FilesClone(wrapping),
        // Any other value means an upload (contract §2.7).
        _ => BodyContent::Image,
    };
    if encoding.is_some() && !content.is_clone() {
        return Err(format!(
            "{ENCODING_HEADER} is for clones, and {CONTENT_HEADER} does not say that this is one"
        ));
    }
    Ok(content)
}
