//! Uploads that survive a broken connection: tus 1.0, and the shape of draft-ietf-httpbis-resumable-upload.
//!
//! The transfer simply waits: its state stays in memory, and the next request continues at the byte that is missing.

mod asked;
mod protocol;

use std::sync::Arc;
use std::time::Duration;

use datapath::digest::Checksum;
use datapath::error::SourceErrorKind;
use http::{Method, Request, StatusCode};
use https::listener::Peer;
use hyper::body::{Body, Incoming};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::asked::{Asked, Dialect, Refused};
use self::protocol::Kept;
use crate::checksum;
use crate::failure::UploadFailed;
use crate::intake::Intake;
use crate::job::{Content, Job, Plan};
use crate::payload::{self, Fed, Payload};
use crate::reply::{self, Reply};
use crate::server::Server;

/// Time for a look at what an earlier upload has left, before the client is told to ask again: a disk of 100 GB takes minutes, and what
/// stands between may give up after one (nginx does).
const LOOK: Duration = Duration::from_secs(20);

/// Answers a request to the place where uploads begin.
pub(crate) async fn create(server: &Arc<Server>, peer: &Peer, request: Request<Incoming>) -> Reply {
    let dialect = Dialect::of(request.headers());
    // As if this path were unknown, which it is to CDI's own upload server.
    let is_here = !server.config.resume.is_zero();
    if request.method() == Method::OPTIONS && is_here {
        return protocol::capabilities();
    }
    if request.method() != Method::POST || !is_here {
        return reply::refuse(reply::empty(StatusCode::NOT_FOUND), request, peer);
    }
    if !server.config.access.allows(peer) {
        return reply::refuse(reply::empty(StatusCode::UNAUTHORIZED), request, peer);
    }
    peer.engage();
    if let Err(refusal) = server.make_way().await {
        return reply::refuse(reply::refused(refusal), request, peer);
    }
    let (plan, asked) = match plan(dialect, &request) {
        Ok(plan) => plan,
        Err(refused) => return reply::refuse(refused.reply(), request, peer),
    };
    let (job, intake) = match server.begin(plan) {
        Ok(begun) => begun,
        Err(refusal) => return reply::refuse(reply::refused(refusal), request, peer),
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
async fn kept(job: &Job) -> Option<Kept> {
    let resumable = job.resumable.as_ref().filter(|_| !job.plan.marks.is_empty())?;
    let mut kept = resumable.kept.subscribe();
    let kept = async {
        tokio::select! {
            kept = kept.wait_for(Option::is_some) => kept.ok().and_then(|kept| *kept),
            () = job.ended() => None,
        }
    };
    Some(match timeout(LOOK, kept).await {
        Ok(end) => Kept::Before(end.unwrap_or(0)),
        Err(_) => Kept::Later,
    })
}

fn plan(dialect: Dialect, request: &Request<Incoming>) -> Result<(Plan, Asked), Refused> {
    let asked = protocol::creation(dialect, request)?;
    check_digests(request)?;
    let promise = checksum::promised_of_parts(request.headers())
        .map_err(|error| Refused::bad_request(error.to_string()))?;
    let plan = Plan {
        content: Content::Image,
        is_async: false,
        total: asked.total,
        promise,
        is_resumable: true,
        marks: asked::marks(request.headers(), &asked)?,
    };
    Ok((plan, asked))
}

/// The request of a resumable upload may bring a part of it.
fn check_digests(request: &Request<Incoming>) -> Result<(), Refused> {
    checksum::refuse_of_part(request.headers()).map_err(|error| Refused::bad_request(error.to_string()))
}

/// Answers a request to the upload `id`.
pub(crate) async fn resume(server: &Arc<Server>, peer: &Peer, id: &str, request: Request<Incoming>) -> Reply {
    let dialect = Dialect::of(request.headers());
    if request.method() == Method::OPTIONS {
        return protocol::capabilities();
    }
    // Before the upload is looked for: a stranger does not learn which ones there are.
    if !server.config.access.allows(peer) {
        return reply::refuse(reply::empty(StatusCode::UNAUTHORIZED), request, peer);
    }
    peer.engage();
    let Some(job) = server.resumable(id) else {
        return reply::refuse(reply::empty(StatusCode::NOT_FOUND), request, peer);
    };
    match *request.method() {
        Method::HEAD => head(&job, dialect).await,
        Method::PATCH => {
            match check_digests(&request).and_then(|()| protocol::continuation(dialect, &request)) {
                Ok(asked) => append(server, peer, &job, asked, request).await,
                Err(refused) => reply::refuse(refused.reply(), request, peer),
            }
        }
        Method::DELETE => {
            job.stop.cancel();
            // Waited for, so that the server is free when the client hears of it.
            reply::outcome(&job).await;
            protocol::deleted(dialect)
        }
        _ => reply::refuse(reply::empty(StatusCode::NOT_FOUND), request, peer),
    }
}

/// Says how far the upload is. The client that asks will send next: a request that still hangs on the old connection ends.
async fn head(job: &Job, dialect: Dialect) -> Reply {
    if let Some(Err(_)) = job.result() {
        // Clients begin anew when they see this, and get to know the reason if it comes again.
        return reply::empty(StatusCode::GONE);
    }
    let Some(resumable) = &job.resumable else {
        return reply::empty(StatusCode::NOT_FOUND);
    };
    // Before the turn is taken: it may take a while.
    let kept = kept(job).await;
    let Some((intake, _)) = resumable.take_turn().await else {
        return protocol::locked(dialect);
    };
    let is_complete = intake.is_none();
    if is_complete {
        drop(intake);
        // The answer to the last bytes may have been lost: it is given again.
        let outcome = reply::outcome(job).await;
        if !outcome.status().is_success() {
            return reply::empty(StatusCode::GONE);
        }
    } else {
        wait_for_client(job);
    }
    protocol::with_kept(protocol::head(dialect, job, is_complete), kept)
}

/// Appends the body of a request, and answers when it is all there; for the last one when the disk is complete.
async fn append(
    server: &Arc<Server>,
    peer: &Peer,
    job: &Arc<Job>,
    asked: Asked,
    request: Request<Incoming>,
) -> Reply {
    if let Some(Err(failure)) = job.result() {
        return reply::refuse(protocol::failed_before(&failure), request, peer);
    }
    let Some(resumable) = &job.resumable else {
        return reply::refuse(reply::empty(StatusCode::NOT_FOUND), request, peer);
    };
    let received = job.progress.received();
    if asked.offset < received {
        // A straggler from a connection that is no more: the current sender is not disturbed.
        return reply::refuse(protocol::wrong_offset(asked, received), request, peer);
    }
    let Some((intake, replaced)) = resumable.take_turn().await else {
        return reply::refuse(protocol::locked(asked.dialect), request, peer);
    };
    let received = job.progress.received();
    let is_complete = intake.is_none();
    if asked.offset != received {
        if !is_complete {
            wait_for_client(job);
        }
        return reply::refuse(protocol::wrong_offset(asked, received), request, peer);
    }
    let end = request.body().size_hint().lower().saturating_add(received);
    if let Some(total) = job.progress.total.filter(|total| end > *total) {
        if !is_complete {
            wait_for_client(job);
        }
        return reply::refuse(protocol::too_much(asked, end, total), request, peer);
    }
    if is_complete {
        drop(intake);
        reply::drain(request.into_body(), peer.engagement());
        return protocol::completed(asked.dialect, job, reply::outcome(job).await);
    }
    // What was promised is told with the last bytes.
    let stated = match checksum::stated(request.headers(), false) {
        Ok(stated) => stated,
        Err(error) => {
            wait_for_client(job);
            return reply::refuse(Refused::bad_request(error.to_string()).reply(), request, peer);
        }
    };
    let engagement = peer.engage();
    let (feeder, dialect) = (Arc::clone(server), asked.dialect);
    let feeding = Arc::clone(job);
    let feeding = async move {
        let payload = Payload::whole(request.into_body(), engagement);
        let end = asked.is_last.then_some(stated).flatten();
        feed(&feeder, &feeding, intake, &asked, payload, end, &replaced).await
    };
    // A task of its own: what it has taken from the client must not be lost when the connection breaks.
    match tokio::spawn(feeding.instrument(job.span.clone())).await {
        Ok(true) => protocol::completed(dialect, job, reply::outcome(job).await),
        Ok(false) => protocol::taken(dialect, job),
        Err(error) => reply::failed(&UploadFailed::new(StatusCode::INTERNAL_SERVER_ERROR, error)),
    }
}

/// Feeds what a request sends. True if that was the last of it.
async fn feed(
    server: &Arc<Server>,
    job: &Arc<Job>,
    mut slot: OwnedMutexGuard<Option<Intake>>,
    asked: &Asked,
    mut payload: Payload,
    stated: Option<Checksum>,
    replaced: &CancellationToken,
) -> bool {
    let Some(mut intake) = slot.take() else {
        return true;
    };
    match payload::feed(&mut payload, &mut intake, server.config.stall, replaced).await {
        Fed::Whole(checksum) if asked.is_last || intake.total() == Some(intake.received()) => {
            intake.finish(checksum.or(stated)).await;
            return true;
        }
        Fed::Broken(error) if error.kind() == SourceErrorKind::Invalid => {
            intake.break_off(error).await;
            payload.drain();
            return true;
        }
        Fed::Unwanted => {
            payload.drain();
            return true;
        }
        Fed::Broken(_) | Fed::Replaced => job.progress.transfers.retried(),
        Fed::Whole(_) => {}
    }
    tracing::info!("the upload waits at byte {} to be continued", intake.received());
    *slot = Some(intake);
    // Before the next request can take its turn.
    wait_for_client(job);
    false
}

/// Gives the client some time to continue.
fn wait_for_client(job: &Job) {
    if let Some(resumable) = &job.resumable {
        resumable.rest(job.progress.received());
    }
}

/// Ends an upload that its client does not continue.
async fn end_in_time(job: Arc<Job>, limit: Duration) {
    let Some(resumable) = &job.resumable else {
        return;
    };
    loop {
        let expire = async {
            match resumable.resting() {
                Some(rest) => {
                    sleep_until(rest.deadline(limit)).await;
                    resumable.expire(rest, limit).await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            is_over = expire => if is_over { return },
            () = resumable.changed() => {}
            () = job.ended() => return,
        }
    }
}
