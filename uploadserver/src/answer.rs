//! From a request to its answer: the checks of CDI's upload server, in their order.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use https::listener::{ActiveGuard, Peer};
use hyper::body::{Body, Incoming};
use program::cdi::{CHECKSUM_HEADER, CONTENT_HEADER, DEVICE_CLONE, ENCODING_HEADER, FILES_CLONE, ZSTD};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::checksum::{self, Promise};
use crate::failure::UploadFailed;
use crate::form;
use crate::intake::Intake;
use crate::job::{Content, Plan, Wrapping};
use crate::payload::{self, Fed, Payload};
use crate::reply::{self, Reply};
use crate::representation::{self, Coded};
use crate::resumable;
use crate::routes::{self, Endpoint, Route};
use crate::server::Server;
use crate::status;

/// Answers one request.
pub(crate) async fn answer(server: Arc<Server>, peer: Peer, request: Request<Incoming>) -> Reply {
    let path = request.uri().path().to_owned();
    match routes::find(&path) {
        Route::Health => reply::text(StatusCode::OK, "OK"),
        Route::Metrics => status::metrics(&server),
        Route::Status if server.config.access.allows(&peer) => status::json(&server),
        Route::Status => reply::empty(StatusCode::UNAUTHORIZED),
        Route::Upload(endpoint) => upload(&server, &peer, endpoint, request).await,
        Route::Resumable => resumable::create(&server, &peer, request).await,
        Route::Resume(id) => resumable::resume(&server, &peer, id, request).await,
        Route::Unknown => reply::refuse(reply::not_found(), request, &peer),
    }
}

async fn upload(server: &Arc<Server>, peer: &Peer, endpoint: Endpoint, request: Request<Incoming>) -> Reply {
    if request.method() == Method::HEAD && endpoint.is_async {
        return presence(&request);
    }
    if request.method() != Method::POST {
        return reply::refuse(reply::empty(StatusCode::NOT_FOUND), request, peer);
    }
    if !server.config.access.allows(peer) {
        return reply::refuse(reply::empty(StatusCode::UNAUTHORIZED), request, peer);
    }
    // The client is the right one: its connection is not closed for another before it has its answer.
    let engagement = peer.engage();
    if let Err(refusal) = server.make_way().await {
        return reply::refuse(reply::refused(refusal), request, peer);
    }
    let content_type = request.headers().get(CONTENT_HEADER);
    let content_type = content_type.map_or("", |value| value.to_str().unwrap_or_default());
    tracing::info!("Content type header is {content_type:?}");
    let (plan, boundary) = match plan(endpoint, &request) {
        Ok(plan) => plan,
        Err(failure) => {
            tracing::error!("{}", failure.sentence);
            return reply::refuse(reply::failed(&failure), request, peer);
        }
    };
    let (job, intake) = match server.begin(plan) {
        Ok(begun) => begun,
        Err(refusal) => return reply::refuse(reply::refused(refusal), request, peer),
    };
    let stall = server.config.stall;
    // A task of its own: what it has taken from the client must not be lost when the connection breaks.
    tokio::spawn(receive(request.into_body(), boundary, intake, stall, engagement));
    reply::outcome(&job).await
}

/// The answer to a client that asks whether there is an upload server; to a cloner of ours also that it is one of ours.
fn presence(request: &Request<Incoming>) -> Reply {
    let mut reply = reply::empty(StatusCode::OK);
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
    mut intake: Intake,
    stall: Duration,
    engagement: ActiveGuard,
) {
    let mut payload = match boundary {
        None => Payload::whole(body, engagement),
        Some(boundary) => match timeout(stall, form::file(body, boundary, engagement)).await {
            Ok(Ok(file)) => Payload::Form(Box::new(file)),
            Ok(Err(error)) => return intake.break_off(error.into()).await,
            Err(_) => return intake.break_off(payload::stalled(stall)).await,
        },
    };
    match payload::feed(&mut payload, &mut intake, stall, &CancellationToken::new()).await {
        Fed::Whole(checksum) => intake.finish(checksum).await,
        Fed::Broken(error) => intake.break_off(error).await,
        Fed::Unwanted | Fed::Replaced => {}
    }
    payload.drain();
}

/// The plan of the request; with the boundary of its form.
fn plan(endpoint: Endpoint, request: &Request<Incoming>) -> Result<(Plan, Option<String>), UploadFailed> {
    let headers = request.headers();
    let bad = |reason: String| UploadFailed::new(StatusCode::BAD_REQUEST, reason);
    let content = content(endpoint, headers).map_err(bad)?;
    let coded = match endpoint.is_form || content.is_clone() {
        true => Coded::Wrapped,
        false => Coded::Object,
    };
    representation::check(request, coded)?;
    if content.is_clone() && endpoint.is_async {
        return Err(UploadFailed::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "async clone not supported",
        ));
    }
    let boundary = endpoint
        .is_form
        .then(|| form::boundary(headers))
        .transpose()
        .map_err(|error| bad(error.to_string()))?;
    let promise = checksum::promised(headers, endpoint.is_form).map_err(|error| bad(error.to_string()))?;
    if promise == Promise::None && content.is_clone_in(Wrapping::Zstd) {
        // Frames of zstd do not tell whether others should follow them.
        return Err(bad(format!("a clone in {ZSTD} needs {CHECKSUM_HEADER}")));
    }
    let plan = Plan {
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

fn content(endpoint: Endpoint, headers: &HeaderMap) -> Result<Content, String> {
    let value = |name| headers.get(name).map(|value: &HeaderValue| value.as_bytes());
    let encoding = value(ENCODING_HEADER);
    let wrapping = match encoding {
        None => Wrapping::Snappy,
        Some(encoding) if encoding == ZSTD.as_bytes() => Wrapping::Zstd,
        Some(other) => {
            let other = other.escape_ascii();
            return Err(format!(
                "a clone in \"{other}\" is not understood: {ENCODING_HEADER} may be {ZSTD}"
            ));
        }
    };
    let content = match value(CONTENT_HEADER) {
        _ if endpoint.is_archive => Content::Archive,
        Some(content) if content == DEVICE_CLONE.as_bytes() => Content::DeviceClone(wrapping),
        Some(content) if content == FILES_CLONE.as_bytes() => Content::FilesClone(wrapping),
        // Any other value means an upload (contract §2.7).
        _ => Content::Image,
    };
    if encoding.is_some() && !content.is_clone() {
        return Err(format!(
            "{ENCODING_HEADER} is for clones, and {CONTENT_HEADER} does not say that this is one"
        ));
    }
    Ok(content)
}
