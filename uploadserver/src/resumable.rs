//! Uploads that survive a broken connection. The protocol is tus 1.0.
//!
//! When a connection breaks, the transfer keeps its state in memory and waits. The next request
//! resumes at the first missing byte.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use https::body;
use https::listener::Peer;
use hyper::body::Incoming;
use program::cdi::{KEPT_HEADER, KEPT_LATER, RESULT_HEADER, RESUMABLE};
use stream::digest::Checksum;
use stream::error::SourceErrorKind;
use stream::observe::Observer;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::failure::UploadError;
use crate::intake::UploadIntake;
use crate::job::{UploadJob, UploadPlan};
use crate::payload::{self, BodyEnd, RequestPayload};
use crate::refusal::RequestRefusal;
use crate::reply::{self, Reply};
use crate::request::UploadPart;
use crate::server::UploadServer;
use crate::tus::{
    DEFERRED, TUS_RESUMABLE, TUS_VERSION, UPLOAD_DEFER_LENGTH, UPLOAD_LENGTH, UPLOAD_OFFSET,
    VERSION,
};

const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");

const EXTENSIONS: HeaderValue =
    HeaderValue::from_static("creation,creation-with-upload,creation-defer-length,termination");

/// Time to look for data from an earlier upload before the client is told to ask again. Looking
/// through a disk of 100 GB takes minutes, and an intermediary such as nginx may give up after one
/// minute.
const LOOK: Duration = Duration::from_secs(20);

/// Begins an upload, possibly with its first bytes.
pub(crate) async fn create(
    server: &Arc<UploadServer>,
    peer: &Peer,
    plan: UploadPlan,
    part: UploadPart,
    request: &mut Option<Request<Incoming>>,
) -> Result<Reply, RequestRefusal> {
    let (job, intake) = server.begin_upload(plan)?;
    job.resumable.set_intake(intake).await;
    wait_for_client(&job);
    // From here on, the upload is ended after a time limit if its client disappears.
    tokio::spawn(end_in_time(Arc::clone(&job), server.config.resume));
    job.span.in_scope(|| tracing::info!("resumable upload begins"));
    let kept = kept(&job).await;
    let appended = append(server, peer, &job, part, request).await;
    let mut reply = appended.unwrap_or_else(|refusal| refusal.reply(true));
    reply.headers_mut().extend(kept);
    Ok(created(reply, &job.id))
}

/// Returns the header that states how much of an earlier upload is kept: everything before an
/// offset except the first MiB, or nothing if the offset is 0. Returns `None` if the client did
/// not ask for it.
async fn kept(job: &UploadJob) -> Option<(HeaderName, HeaderValue)> {
    if job.plan.marks().is_empty() {
        return None;
    }
    let mut kept = job.resumable.kept.subscribe();
    let kept = async {
        tokio::select! {
            kept = kept.wait_for(Option::is_some) => kept.ok().and_then(|kept| *kept),
            () = job.wait_for_end() => None,
        }
    };
    let kept = match timeout(LOOK, kept).await {
        Ok(end) => HeaderValue::from(end.unwrap_or(0)),
        Err(_) => HeaderValue::from_static(KEPT_LATER),
    };
    Some((HeaderName::from_static(KEPT_HEADER), kept))
}

/// Cancels the upload and waits for its end, so that the server is free by the time the client
/// reads the response.
pub(crate) async fn end(job: &UploadJob) -> Reply {
    job.stop.cancel();
    reply::outcome_reply(job).await;
    reply::empty_reply(StatusCode::NO_CONTENT)
}

/// Reports how much of the upload has arrived. A client that asks for this is about to send, so a
/// request that still hangs on the old connection is ended.
pub(crate) async fn head(job: &UploadJob) -> Result<Reply, RequestRefusal> {
    if let Some(Err(_)) = job.result() {
        // Clients restart the upload when they get this status. If the upload fails again, they
        // get the reason.
        return Err(RequestRefusal::Gone);
    }
    // This comes before the turn is taken, because it may take a while.
    let kept = kept(job).await;
    let (intake, _) = job.resumable.take_turn().await.ok_or(RequestRefusal::Locked)?;
    if intake.is_some() {
        wait_for_client(job);
    } else {
        drop(intake);
        // The response to the last bytes may have been lost, so it is sent again.
        if !reply::outcome_reply(job).await.status().is_success() {
            return Err(RequestRefusal::Gone);
        }
    }
    let mut reply = with_offset(job, reply::empty_reply(StatusCode::OK));
    reply.headers_mut().extend(kept);
    Ok(reply)
}

/// Appends the body of a request and answers once all of it has arrived. The last request is
/// answered once the disk is complete.
pub(crate) async fn append(
    server: &Arc<UploadServer>,
    peer: &Peer,
    job: &Arc<UploadJob>,
    part: UploadPart,
    request: &mut Option<Request<Incoming>>,
) -> Result<Reply, RequestRefusal> {
    if let Some(Err(failure)) = job.result() {
        return Err(RequestRefusal::Failed(failure));
    }
    // A delayed request from a broken connection must not disturb the current sender.
    part.check_new(job.progress.received_bytes())?;
    let (intake, replaced) = job.resumable.take_turn().await.ok_or(RequestRefusal::Locked)?;
    let length = part
        .check_place(job.progress.received_bytes(), job.progress.total_bytes())
        .inspect_err(|_| {
            if intake.is_some() {
                wait_for_client(job);
            }
        })?;
    let Some(sent) = request.take_if(|_| intake.is_some()) else {
        drop(intake);
        return Ok(completed(job, reply::outcome_reply(job).await));
    };
    if let Some(length) = length {
        // This cannot fail: the request has the turn, so no other request can set the total.
        job.progress.total.set(length).ok();
    }
    let before = job.progress.received_bytes();
    let payload = RequestPayload::from_body(sent.into_body(), peer.hold_active());
    let (feeder, feeding) = (Arc::clone(server), Arc::clone(job));
    let feeding =
        async move { feed(&feeder, &feeding, intake, payload, part.stated, &replaced).await };
    // This runs in its own task: bytes already taken from the client must not be lost when the
    // connection breaks and the handler is dropped.
    Ok(match tokio::spawn(feeding.instrument(job.span.clone())).await {
        Ok(true) => completed(job, reply::outcome_reply(job).await),
        Ok(false) => {
            job.wait_recognised(before).await;
            if let Some(Err(failure)) = job.result() {
                return Err(RequestRefusal::Failed(failure));
            }
            with_offset(job, reply::empty_reply(StatusCode::NO_CONTENT))
        }
        Err(error) => {
            reply::failure_reply(&UploadError::new(StatusCode::INTERNAL_SERVER_ERROR, error))
        }
    })
}

/// Feeds the body of a request into the upload. Returns true if no more bytes are expected after
/// it.
async fn feed(
    server: &Arc<UploadServer>,
    job: &Arc<UploadJob>,
    mut slot: OwnedMutexGuard<Option<UploadIntake>>,
    mut payload: RequestPayload,
    stated: Option<Checksum>,
    replaced: &CancellationToken,
) -> bool {
    let Some(mut intake) = slot.take() else {
        return true;
    };
    match payload::feed_intake(&mut payload, &mut intake, server.config.stall, replaced).await {
        // Only an invalid request ends the upload; after a broken connection the upload can be
        // resumed.
        BodyEnd::Broken(error) if error.kind() == SourceErrorKind::Invalid => {
            intake.break_off(error).await
        }
        BodyEnd::Unwanted => {}
        BodyEnd::Whole(trailing) if intake.has_all_bytes() => {
            intake.finish_body(trailing.or(stated)).await;
        }
        // The client is gone. Because all bytes have arrived, it will consider the upload
        // complete, so the upload is completed here.
        _ if intake.has_all_bytes() => intake.finish_body(stated).await,
        end => {
            if let Some(kind) = end.interruption_kind() {
                job.progress.counted.record_retry(kind);
            }
            intake.flush_bytes().await;
            let received = intake.received_bytes();
            tracing::info!("the upload waits at byte {received} to be resumed");
            *slot = Some(intake);
            // This has to happen before `slot` is dropped and the next request can take the turn.
            wait_for_client(job);
            return false;
        }
    }
    payload.drain_rest();
    true
}

/// Starts the period in which the client may resume the upload.
fn wait_for_client(job: &UploadJob) {
    job.resumable.begin_rest(job.progress.received_bytes());
}

/// Ends the upload if its client does not resume it in time.
async fn end_in_time(job: Arc<UploadJob>, limit: Duration) {
    let resumable = &job.resumable;
    loop {
        let expire = async {
            match resumable.current_rest() {
                Some(rest) => {
                    sleep_until(rest.deadline(limit)).await;
                    resumable.expire_rest(rest, limit).await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            is_over = expire => if is_over { return },
            () = resumable.wait_for_change() => {}
            () = job.wait_for_end() => return,
        }
    }
}

/// Adds the header that marks a reply as a tus reply.
pub(crate) fn mark_reply(reply: &mut Reply) {
    reply.headers_mut().insert(TUS_RESUMABLE, VERSION);
}

/// Answers a request for the capabilities of the server.
pub(crate) fn capabilities() -> Reply {
    let mut reply = reply::empty_reply(StatusCode::NO_CONTENT);
    let headers = reply.headers_mut();
    headers.insert(TUS_VERSION, VERSION);
    headers.insert(TUS_EXTENSION, EXTENSIONS);
    headers.insert(TUS_MAX_SIZE, HeaderValue::from(body::MAX_BYTES));
    reply
}

/// Turns `reply` into the response to the creation of an upload. A success becomes 201, and
/// `Location` is the path for the following requests.
fn created(mut reply: Reply, id: &str) -> Reply {
    if reply.status().is_success() {
        *reply.status_mut() = StatusCode::CREATED;
    }
    // The header is added even after a refusal, because the upload has begun and the client may
    // send its bytes again.
    if let Ok(location) = HeaderValue::from_str(&format!("{RESUMABLE}/{id}")) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    reply
}

/// Builds the response that follows after all bytes have arrived. `outcome` is the response with
/// the result.
fn completed(job: &UploadJob, mut outcome: Reply) -> Reply {
    if outcome.status() == StatusCode::OK {
        // A 204 response has no body, so the result line is sent in a header.
        outcome = reply::empty_reply(StatusCode::NO_CONTENT);
        if let Ok(line) = HeaderValue::from_str(reply::success_line(job).trim_end()) {
            outcome.headers_mut().insert(HeaderName::from_static(RESULT_HEADER), line);
        }
    }
    with_offset(job, outcome)
}

/// Adds the headers that state how much of the upload has arrived.
fn with_offset(job: &UploadJob, mut reply: Reply) -> Reply {
    let headers = reply.headers_mut();
    headers.insert(UPLOAD_OFFSET, HeaderValue::from(job.progress.received_bytes()));
    match job.progress.total_bytes() {
        Some(total) => headers.insert(UPLOAD_LENGTH, HeaderValue::from(total)),
        None => headers.insert(UPLOAD_DEFER_LENGTH, DEFERRED),
    };
    // tus requires this for HEAD, because a cached response would contain a wrong offset.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
