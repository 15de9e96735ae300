//! Uploads that survive a broken connection: tus 1.0.
//!
//! The transfer simply waits: its state stays in memory, and the next request continues at the byte that is missing.

mod asked;
mod protocol;

use std::sync::Arc;
use std::time::Duration;

use datapath::digest::Checksum;
use datapath::error::SourceErrorKind;
use datapath::observe::{Observer, Stage};
use http::{Method, Request, StatusCode};
use https::listener::Peer;
use hyper::body::{Body, Incoming};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::asked::{RequestRefusal, UploadRequest, check_version};
use self::protocol::KeptState;
use crate::checksum;
use crate::failure::UploadError;
use crate::intake::UploadIntake;
use crate::job::{BodyContent, UploadJob, UploadPlan};
use crate::payload::{self, BodyEnd, RequestPayload};
use crate::reply::{self, Reply};
use crate::server::UploadServer;

/// Time for a look at what an earlier upload has left, before the client is told to ask again: a disk of 100 GB takes minutes, and what
/// stands between may give up after one (nginx does).
const LOOK: Duration = Duration::from_secs(20);

/// Answers a request to the place where uploads begin.
pub(crate) async fn create(server: &Arc<UploadServer>, peer: &Peer, request: Request<Incoming>) -> Reply {
    // As if this path were unknown, which it is to CDI's own upload server.
    let is_here = !server.config.resume.is_zero();
    if request.method() == Method::OPTIONS && is_here {
        return protocol::capabilities();
    }
    if request.method() != Method::POST || !is_here {
        return reply::refuse_body(reply::empty_reply(StatusCode::NOT_FOUND), request, peer);
    }
    if !server.config.access.allows(peer) {
        return reply::refuse_body(reply::empty_reply(StatusCode::UNAUTHORIZED), request, peer);
    }
    peer.hold_active();
    if let Err(refusal) = server.make_way().await {
        return reply::refuse_body(reply::occupied_reply(refusal), request, peer);
    }
    let (plan, asked) = match plan(&request) {
        Ok(plan) => plan,
        Err(refused) => return reply::refuse_body(refused.reply(), request, peer),
    };
    let (job, intake) = match server.begin_upload(plan) {
        Ok(begun) => begun,
        Err(refusal) => return reply::refuse_body(reply::occupied_reply(refusal), request, peer),
    };
    if let Some(resumable) = &job.resumable {
        resumable.set_intake(intake).await;
        wait_for_client(&job);
        // From here on a client that goes away leaves an upload that ends in time.
        tokio::spawn(end_in_time(Arc::clone(&job), server.config.resume));
    }
    job.span.in_scope(|| tracing::info!("resumable upload begins"));
    let kept = kept(&job).await;
    let reply = append(server, peer, &job, asked, request).await;
    protocol::created(protocol::with_kept(reply, kept), &job.id)
}

/// What is to be said of what an earlier upload has left; `None` if it was not asked for.
async fn kept(job: &UploadJob) -> Option<KeptState> {
    let resumable = job.resumable.as_ref().filter(|_| !job.plan.marks.is_empty())?;
    let mut kept = resumable.kept.subscribe();
    let kept = async {
        tokio::select! {
            kept = kept.wait_for(Option::is_some) => kept.ok().and_then(|kept| *kept),
            () = job.wait_for_end() => None,
        }
    };
    Some(match timeout(LOOK, kept).await {
        Ok(end) => KeptState::Before(end.unwrap_or(0)),
        Err(_) => KeptState::Later,
    })
}

fn plan(request: &Request<Incoming>) -> Result<(UploadPlan, UploadRequest), RequestRefusal> {
    let asked = protocol::creation(request)?;
    check_digests(request)?;
    let promise = checksum::promised_of_parts(request.headers())
        .map_err(|error| RequestRefusal::bad_request(error.to_string()))?;
    let plan = UploadPlan {
        content: BodyContent::Image,
        is_async: false,
        total: asked.total,
        promise,
        is_resumable: true,
        marks: asked::marks(request.headers(), &asked)?,
    };
    Ok((plan, asked))
}

/// The request of a resumable upload may bring a part of it.
fn check_digests(request: &Request<Incoming>) -> Result<(), RequestRefusal> {
    checksum::refuse_of_part(request.headers())
        .map_err(|error| RequestRefusal::bad_request(error.to_string()))
}

/// Answers a request to the upload `id`.
pub(crate) async fn resume(
    server: &Arc<UploadServer>,
    peer: &Peer,
    id: &str,
    request: Request<Incoming>,
) -> Reply {
    if request.method() == Method::OPTIONS {
        return protocol::capabilities();
    }
    // Before the upload is looked for: a stranger does not learn which ones there are.
    if !server.config.access.allows(peer) {
        return reply::refuse_body(reply::empty_reply(StatusCode::UNAUTHORIZED), request, peer);
    }
    peer.hold_active();
    let Some(job) = server.find_resumable(id) else {
        return reply::refuse_body(reply::empty_reply(StatusCode::NOT_FOUND), request, peer);
    };
    let asked = match *request.method() {
        Method::PATCH => check_digests(&request).and_then(|()| protocol::continuation(&request).map(Some)),
        _ => check_version(request.headers()).map(|()| None),
    };
    match (asked, request.method()) {
        (Err(refused), _) => reply::refuse_body(refused.reply(), request, peer),
        (Ok(Some(asked)), _) => append(server, peer, &job, asked, request).await,
        (Ok(None), &Method::HEAD) => head(&job).await,
        (Ok(None), &Method::DELETE) => {
            job.stop.cancel();
            // Waited for, so that the server is free when the client hears of it.
            reply::outcome_reply(&job).await;
            protocol::deleted()
        }
        _ => reply::refuse_body(reply::empty_reply(StatusCode::NOT_FOUND), request, peer),
    }
}

/// Says how far the upload is. The client that asks will send next: a request that still hangs on the old connection ends.
async fn head(job: &UploadJob) -> Reply {
    if let Some(Err(_)) = job.result() {
        // Clients begin anew when they see this, and get to know the reason if it comes again.
        return reply::empty_reply(StatusCode::GONE);
    }
    let Some(resumable) = &job.resumable else {
        return reply::empty_reply(StatusCode::NOT_FOUND);
    };
    // Before the turn is taken: it may take a while.
    let kept = kept(job).await;
    let Some((intake, _)) = resumable.take_turn().await else {
        return protocol::locked();
    };
    let is_complete = intake.is_none();
    if is_complete {
        drop(intake);
        // The answer to the last bytes may have been lost: it is given again.
        let outcome = reply::outcome_reply(job).await;
        if !outcome.status().is_success() {
            return reply::empty_reply(StatusCode::GONE);
        }
    } else {
        wait_for_client(job);
    }
    protocol::with_kept(protocol::head(job), kept)
}

/// Appends the body of a request, and answers when it is all there; for the last one when the disk is complete.
async fn append(
    server: &Arc<UploadServer>,
    peer: &Peer,
    job: &Arc<UploadJob>,
    asked: UploadRequest,
    request: Request<Incoming>,
) -> Reply {
    if let Some(Err(failure)) = job.result() {
        return reply::refuse_body(protocol::failed_before(&failure), request, peer);
    }
    let Some(resumable) = &job.resumable else {
        return reply::refuse_body(reply::empty_reply(StatusCode::NOT_FOUND), request, peer);
    };
    let received = job.progress.received_bytes();
    if asked.offset < received {
        // A straggler from a connection that is no more: the current sender is not disturbed.
        return reply::refuse_body(protocol::wrong_offset(asked, received), request, peer);
    }
    let Some((intake, replaced)) = resumable.take_turn().await else {
        return reply::refuse_body(protocol::locked(), request, peer);
    };
    let received = job.progress.received_bytes();
    let is_complete = intake.is_none();
    if asked.offset != received {
        if !is_complete {
            wait_for_client(job);
        }
        return reply::refuse_body(protocol::wrong_offset(asked, received), request, peer);
    }
    let end = request.body().size_hint().lower().saturating_add(received);
    let total = match asked.total_with(job.progress.total_bytes(), received, end) {
        Ok(total) => total,
        Err(refused) => {
            if !is_complete {
                wait_for_client(job);
            }
            return reply::refuse_body(refused.reply(), request, peer);
        }
    };
    if is_complete {
        drop(intake);
        reply::drain_body(request.into_body(), peer.active_guard());
        return protocol::completed(job, reply::outcome_reply(job).await);
    }
    // What was promised is told with the last bytes.
    let stated = match checksum::stated(request.headers(), false) {
        Ok(stated) => stated,
        Err(error) => {
            wait_for_client(job);
            return reply::refuse_body(
                RequestRefusal::bad_request(error.to_string()).reply(),
                request,
                peer,
            );
        }
    };
    if let Some(total) = total {
        // Nobody else sets it: this request has the turn, and takes the bytes now.
        job.progress.total.set(total).ok();
    }
    let engagement = peer.hold_active();
    let (feeder, feeding) = (Arc::clone(server), Arc::clone(job));
    let feeding = async move {
        let payload = RequestPayload::from_body(request.into_body(), engagement);
        feed(&feeder, &feeding, intake, payload, stated, &replaced).await
    };
    // A task of its own: what it has taken from the client must not be lost when the connection breaks.
    match tokio::spawn(feeding.instrument(job.span.clone())).await {
        Ok(true) => protocol::completed(job, reply::outcome_reply(job).await),
        Ok(false) => protocol::taken(job),
        Err(error) => reply::failure_reply(&UploadError::new(StatusCode::INTERNAL_SERVER_ERROR, error)),
    }
}

/// Feeds what a request sends. True if that was the last of it.
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
    let end = payload::feed_intake(&mut payload, &mut intake, server.config.stall, replaced).await;
    match end {
        BodyEnd::Broken(error) if error.kind() == SourceErrorKind::Invalid => {
            intake.break_off(error).await;
            payload.drain_rest();
            return true;
        }
        BodyEnd::Unwanted => {
            payload.drain_rest();
            return true;
        }
        // Also if the client is gone: it takes an upload with all its bytes for complete.
        end if intake.has_all_bytes() => {
            let trailing = if let BodyEnd::Whole(checksum) = end {
                checksum
            } else {
                None
            };
            intake.finish_body(trailing.or(stated)).await;
            return true;
        }
        BodyEnd::Broken(_) | BodyEnd::Replaced => job.progress.counted.record_retry(Stage::Source),
        BodyEnd::Whole(_) => {}
    }
    tracing::info!(
        "the upload waits at byte {} to be continued",
        intake.received_bytes()
    );
    *slot = Some(intake);
    // Before the next request can take its turn.
    wait_for_client(job);
    false
}

/// Gives the client some time to continue.
fn wait_for_client(job: &UploadJob) {
    if let Some(resumable) = &job.resumable {
        resumable.begin_rest(job.progress.received_bytes());
    }
}

/// Ends an upload that its client does not continue.
async fn end_in_time(job: Arc<UploadJob>, limit: Duration) {
    let Some(resumable) = &job.resumable else {
        return;
    };
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
