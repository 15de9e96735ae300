//! The state that is shared by all requests to a server.

use std::sync::Arc;
use std::time::Duration;

use datapath::disk;
use http::StatusCode;
use parking_lot::Mutex;
use program::job::POD_GRACE;
use program::{panics, threads};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::failure::UploadError;
use crate::figures::ServerMetrics;
use crate::intake::{self, UploadIntake};
use crate::job::{UploadJob, UploadPlan, UploadSuccess};
use crate::refusal::RequestRefusal;
use crate::slot::{ServerState, SlotOccupied, UploadSlot};
use crate::watched::WatchedUpload;
use crate::write;

/// Time to wait until an abandoned upload has ended when a new one takes its place.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// An upload server: its settings and its current state.
pub(crate) struct UploadServer {
    pub(crate) config: Config,
    pub(crate) slot: UploadSlot,
    pub(crate) figures: ServerMetrics,
    /// The most recent resumable upload that has ended. Its client may not know the result yet.
    ended: Mutex<Option<Arc<UploadJob>>>,
    stop: CancellationToken,
}

impl UploadServer {
    /// Creates a server that accepts uploads until `stop` is cancelled.
    pub(crate) fn new(config: Config, stop: CancellationToken) -> Self {
        Self {
            slot: UploadSlot::new(config.once),
            figures: ServerMetrics::default(),
            ended: Mutex::new(None),
            stop,
            config,
        }
    }

    /// Returns an error if no upload may begin. To make way, a resumable upload is ended if its
    /// client has not resumed it for a while.
    pub(crate) async fn make_way(&self) -> Result<(), SlotOccupied> {
        match self.slot.state() {
            ServerState::Idle => Ok(()),
            ServerState::Done(_) | ServerState::Broken(_) => Err(SlotOccupied::Done),
            ServerState::Busy(job) => {
                if !job.resumable.try_abandon().await {
                    return Err(SlotOccupied::Busy);
                }
                // If the old upload does not end in this time, `begin_upload` rejects the new one.
                timeout(TAKE_OVER, self.slot.wait_for_rest()).await.ok();
                Ok(())
            }
        }
    }

    /// Begins an upload if none is in progress, and returns the intake for its bytes. However its
    /// thread ends, the job ends and the slot becomes free, even if the system cannot create the
    /// thread.
    pub(crate) fn begin_upload(
        self: &Arc<Self>,
        plan: UploadPlan,
    ) -> Result<(Arc<UploadJob>, UploadIntake), SlotOccupied> {
        let job = Arc::new(UploadJob::new(
            plan,
            self.stop.child_token(),
            Arc::clone(&self.figures.transfers),
        ));
        self.slot.claim_for(&job)?;
        let (intake, received) = intake::channel(
            &job.progress.total,
            &job.plan.promise,
            Arc::clone(&job.progress.received),
            job.stop.clone(),
        );
        let (server, begun) = (Arc::clone(self), Arc::clone(&job));
        let started = threads::start_thread(move || {
            let _entered = begun.span.enter();
            let write = || write::write_upload(&server.config, &begun, received);
            let written = panics::catch_panic(|| match &server.config.display {
                Some(display) => display.run_watched(WatchedUpload(Arc::clone(&begun)), write),
                None => write(),
            });
            let failed = |panicked| UploadError::new(StatusCode::INTERNAL_SERVER_ERROR, panicked);
            server.finish_upload(&begun, written.unwrap_or_else(|panicked| Err(failed(panicked))));
        });
        if let Err(error) = started {
            let _entered = job.span.enter();
            // The status is 503, because a retry may get the thread that the system refused here.
            self.finish_upload(&job, Err(UploadError::new(StatusCode::SERVICE_UNAVAILABLE, error)));
        }
        Ok((job, intake))
    }

    /// Records the result of an upload. The slot becomes free before the client gets its response,
    /// because the client may send another upload at once.
    fn finish_upload(&self, job: &Arc<UploadJob>, result: Result<UploadSuccess, UploadError>) {
        self.figures.count_upload(job, result.is_ok());
        // This comes before the slot is released, so that a client that asks for its upload in the
        // meantime finds it.
        if job.plan.is_resumable() {
            *self.ended.lock() = Some(Arc::clone(job));
        }
        let was_told = job.close_acknowledgement();
        match &result {
            Ok(success) => self.slot.set_success(*success),
            Err(failure) if was_told => {
                tracing::error!("Error during resumed processing: {}", failure.sentence);
                self.slot.break_down(failure.sentence.clone());
            }
            Err(failure) => {
                tracing::error!("{}", failure.sentence);
                self.slot.release();
            }
        }
        job.set_result(result);
    }

    /// Returns the resumable upload with this id, which is in progress or has just ended.
    pub(crate) fn find_resumable(&self, id: &str) -> Result<Arc<UploadJob>, RequestRefusal> {
        let ended = self.ended.lock().clone();
        let jobs = [self.slot.current_job(), ended];
        jobs.into_iter()
            .flatten()
            .find(|job| job.plan.is_resumable() && job.id == id)
            .ok_or(RequestRefusal::NoUpload)
    }

    /// Leaves the disk of the upload in progress if another server can continue it.
    pub(crate) fn leave_interrupted(&self) {
        let can_continue = |job: Arc<UploadJob>| job.can_continue_elsewhere();
        if self.config.is_pod && self.slot.current_job().is_some_and(can_continue) {
            tracing::info!("the part of the disk that has arrived stays for the next server");
            disk::leave_unfinished();
        }
    }

    /// Stops the upload in progress and gives it time to clean up.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        timeout(POD_GRACE, self.slot.wait_for_rest()).await.ok();
        // The process does not wait any longer, so the unfinished disk is removed even if the
        // transfer is still running.
        disk::remove_unfinished();
    }
}
