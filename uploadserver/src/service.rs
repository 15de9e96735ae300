//! From a request to its answer: the checks of CDI's upload server, in their order.

use std::sync::Arc;
use std::time::Duration;

use daemon::listener::Peer;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::{Body, Incoming};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::checksum;
use crate::failure::Failure;
use crate::feed::{self, Fed, Payload};
use crate::form;
use crate::intake::Intake;
use crate::job::{Content, Plan};
use crate::reply::{self, Reply};
use crate::resumable;
use crate::routes::{self, Endpoint, Route};
use crate::server::Server;
use crate::status;

/// Says that a body is a clone, and of what.
const CONTENT_HEADER: &str = "x-cdi-content-type";

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
        Route::Unknown => reply::refuse(reply::not_found(), request),
    }
}

async fn upload(server: &Arc<Server>, peer: &Peer, endpoint: Endpoint, request: Request<Incoming>) -> Reply {
    if request.method() == Method::HEAD && endpoint.is_async {
        return reply::empty(StatusCode::OK);
    }
    if request.method() != Method::POST {
        return reply::refuse(reply::empty(StatusCode::NOT_FOUND), request);
    }
    if !server.config.access.allows(peer) {
        return reply::refuse(reply::empty(StatusCode::UNAUTHORIZED), request);
    }
    if let Err(refusal) = server.make_way().await {
        return reply::refuse(reply::refused(refusal), request);
    }
    let content_type = request.headers().get(CONTENT_HEADER);
    let content_type = content_type.map_or("", |value| value.to_str().unwrap_or_default());
    tracing::info!("Content type header is {content_type:?}");
    let (plan, boundary) = match plan(endpoint, &request) {
        Ok(plan) => plan,
        Err(failure) => {
            tracing::error!("{}", failure.sentence);
            return reply::refuse(reply::failed(&failure), request);
        }
    };
    let (job, intake) = match server.begin(plan) {
        Ok(begun) => begun,
        Err(refusal) => return reply::refuse(reply::refused(refusal), request),
    };
    let stall = server.config.stall;
    let engagement = peer.place.engage();
    // A task of its own: what it has taken from the client must not be lost when the connection breaks.
    tokio::spawn(async move {
        receive(request.into_body(), boundary, intake, stall).await;
        drop(engagement);
    });
    reply::outcome(&job).await
}

/// Feeds a whole body into an upload.
async fn receive(body: Incoming, boundary: Option<String>, mut intake: Intake, stall: Duration) {
    let mut payload = match boundary {
        None => Payload::whole(body),
        Some(boundary) => match timeout(stall, form::file(body, boundary)).await {
            Ok(Ok(file)) => Payload::Form(Box::new(file)),
            Ok(Err(error)) => return intake.break_off(error.into()).await,
            Err(_) => return intake.break_off(feed::stalled(stall)).await,
        },
    };
    match feed::feed(&mut payload, &mut intake, stall, &CancellationToken::new()).await {
        Fed::Whole(checksum) => intake.finish(checksum).await,
        Fed::Broken(error) => intake.break_off(error).await,
        Fed::Unwanted | Fed::Replaced => {}
    }
    payload.drain();
}

/// What the request asks for; with the boundary of its form.
fn plan(endpoint: Endpoint, request: &Request<Incoming>) -> Result<(Plan, Option<String>), Failure> {
    let headers = request.headers();
    let content = content(endpoint, headers);
    if content.is_clone() && endpoint.is_async {
        return Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "async clone not supported",
        ));
    }
    let bad = |reason: String| Failure::new(StatusCode::BAD_REQUEST, reason);
    let boundary = endpoint
        .is_form
        .then(|| form::boundary(headers))
        .transpose()
        .map_err(|error| bad(error.to_string()))?;
    let promise = checksum::promised(headers, endpoint.is_form).map_err(|error| bad(error.to_string()))?;
    let plan = Plan {
        content,
        is_async: endpoint.is_async,
        // The length of a form is not that of its file.
        total: request.body().size_hint().exact().filter(|_| !endpoint.is_form),
        promise,
        is_resumable: false,
    };
    Ok((plan, boundary))
}

fn content(endpoint: Endpoint, headers: &HeaderMap) -> Content {
    if endpoint.is_archive {
        return Content::Archive;
    }
    match headers.get(CONTENT_HEADER).map(|value| value.as_bytes()) {
        Some(b"blockdevice-clone") => Content::DeviceClone,
        Some(b"filesystem-clone") => Content::FilesClone,
        _ => Content::Image,
    }
}
