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
use crate::form::{self, FormError};
use crate::intake::Intake;
use crate::job::{Content, Job, Plan};
use crate::reply::{self, Reply};
use crate::resumable;
use crate::routes::{self, Endpoint, Route};
use crate::serve::Server;
use crate::slot::{Refusal, State};
use crate::status;

/// Says that a body is a clone, and of what.
const CONTENT_HEADER: &str = "x-cdi-content-type";

/// How long the end of an abandoned upload is waited for when a new one takes its place.
const TAKE_OVER: Duration = Duration::from_secs(5);

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
    if let Err(refusal) = make_way(server).await {
        return reply::refuse(refused(refusal), request);
    }
    let content_type = request.headers().get(CONTENT_HEADER);
    let content_type = content_type.map_or("", |value| value.to_str().unwrap_or_default());
    tracing::info!("Content type header is {content_type:?}");
    let (plan, boundary) = match plan(endpoint, &request) {
        Ok(plan) => plan,
        Err(failure) => {
            tracing::error!("{}", failure.sentence);
            return reply::refuse(failed(&failure), request);
        }
    };
    let (job, intake) = match server.begin(plan) {
        Ok(begun) => begun,
        Err(refusal) => return reply::refuse(refused(refusal), request),
    };
    let stall = server.config.stall;
    let engagement = peer.place.engage();
    // A task of its own: what it has taken from the client must not be lost when the connection breaks.
    tokio::spawn(async move {
        receive(request.into_body(), boundary, intake, stall).await;
        drop(engagement);
    });
    outcome(&job).await
}

/// The answer to the request that completes an upload.
pub(crate) async fn outcome(job: &Job) -> Reply {
    match job.answer().await {
        Ok(()) => {
            if job.plan.is_async {
                tracing::info!("Returning success to caller, continue processing in background");
            }
            reply::empty(StatusCode::OK)
        }
        Err(failure) => failed(&failure),
    }
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

/// Whether a new upload may begin. A resumable one that nobody has continued for a while makes room.
pub(crate) async fn make_way(server: &Server) -> Result<(), Refusal> {
    match server.slot.state() {
        State::Idle => Ok(()),
        State::Done(_) | State::Broken(_) => Err(Refusal::Done),
        State::Busy(job) => {
            if !resumable::abandon(&job).await {
                return Err(Refusal::Busy);
            }
            timeout(TAKE_OVER, server.slot.wait_for(State::is_at_rest))
                .await
                .ok();
            Ok(())
        }
    }
}

pub(crate) fn refused(refusal: Refusal) -> Reply {
    match refusal {
        Refusal::Busy => {
            tracing::warn!("Got concurrent upload request");
            reply::empty(StatusCode::SERVICE_UNAVAILABLE)
        }
        Refusal::Done => {
            tracing::warn!("Got upload request after already done");
            reply::empty(StatusCode::CONFLICT)
        }
    }
}

pub(crate) fn failed(failure: &Failure) -> Reply {
    reply::text(failure.status, failure.sentence.clone())
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

impl From<FormError> for datapath::error::SourceError {
    fn from(error: FormError) -> Self {
        Self::new(datapath::error::SourceErrorKind::Invalid, error.to_string())
    }
}
