//! The state that all requests of a server share.

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
use crate::failure::UploadFailed;
use crate::figures::Figures;
use crate::intake::{self, Intake};
use crate::job::{Job, Plan, Success};
use crate::slot::{Occupied, Slot, State};
use crate::write;

/// Time for which the end of an abandoned upload is waited for when a new one takes its place.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// A server: its settings, and what it is doing.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) slot: Slot,
    pub(crate) figures: Figures,
    /// The last resumable upload that has ended, whose client may not know yet.
    ended: Mutex<Option<Arc<Job>>>,
    stop: CancellationToken,
}

impl Server {
    /// A server that waits for uploads until `stop` is cancelled.
    pub(crate) fn new(config: Config, stop: CancellationToken) -> Self {
        Self {
            slot: Slot::new(config.once),
            figures: Figures::default(),
            ended: Mutex::new(None),
            stop,
            config,
        }
    }

    /// Allows or refuses a new upload. A resumable one that was not continued for a while makes room.
    pub(crate) async fn make_way(&self) -> Result<(), Occupied> {
        match self.slot.state() {
            State::Idle => Ok(()),
            State::Done(_) | State::Broken(_) => Err(Occupied::Done),
            State::Busy(job) => {
                let is_abandoned = match &job.resumable {
                    Some(resumable) => resumable.abandon().await,
                    None => false,
                };
                if !is_abandoned {
                    return Err(Occupied::Busy);
                }
                timeout(TAKE_OVER, self.slot.wait_for(State::is_at_rest))
                    .await
                    .ok();
                Ok(())
            }
        }
    }

    /// Begins an upload, if none is in progress: its bytes go into the intake. The job ends
    /// however its thread ends, also if the system gives none; the place is free then.
    pub(crate) fn begin(self: &Arc<Self>, plan: Plan) -> Result<(Arc<Job>, Intake), Occupied> {
        let job = Arc::new(Job::new(
            plan,
            self.stop.child_token(),
            Arc::clone(&self.figures.transfers),
        ));
        self.slot.claim(&job)?;
        let (intake, received) = intake::channel(
            job.plan.total,
            &job.plan.promise,
            Arc::clone(&job.progress.received),
            job.stop.clone(),
        );
        let (server, begun) = (Arc::clone(self), Arc::clone(&job));
        let started = threads::start(move || {
            let _entered = begun.span.enter();
            let written = panics::guard(|| write::write(&server.config, &begun, received));
            let failed = |panicked| UploadFailed::new(StatusCode::INTERNAL_SERVER_ERROR, panicked);
            server.finish(&begun, written.unwrap_or_else(|panicked| Err(failed(panicked))));
        });
        if let Err(error) = started {
            let _entered = job.span.enter();
            self.finish(
                &job,
                Err(UploadFailed::new(StatusCode::SERVICE_UNAVAILABLE, error)),
            );
        }
        Ok((job, intake))
    }

    /// Notes what became of an upload. The place is free before the client is answered, who may come again at once.
    fn finish(&self, job: &Arc<Job>, result: Result<Success, UploadFailed>) {
        self.figures.count(job, result.is_ok());
        if job.resumable.is_some() {
            *self.ended.lock() = Some(Arc::clone(job));
        }
        let was_told = job.seal();
        match &result {
            Ok(success) => self.slot.succeed(*success),
            Err(failure) if was_told => {
                tracing::error!("Error during resumed processing: {}", failure.sentence);
                self.slot.break_down(failure.sentence.clone());
            }
            Err(failure) => {
                tracing::error!("{}", failure.sentence);
                self.slot.release();
            }
        }
        job.end(result);
    }

    /// The resumable upload of this name, in progress or just ended.
    pub(crate) fn resumable(&self, id: &str) -> Option<Arc<Job>> {
        let ended = self.ended.lock().clone();
        let jobs = [self.slot.job(), ended];
        jobs.into_iter()
            .flatten()
            .find(|job| job.resumable.is_some() && job.id == id)
    }

    /// Ends what is in progress, and gives it time to clean up.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        timeout(POD_GRACE, self.slot.wait_for(State::is_at_rest))
            .await
            .ok();
        // The process does not wait any longer: the file goes from under the transfer.
        disk::abandon();
    }
}
