//! One upload at a time, and one success in all.
//!
//! It is free before the answer goes out, because the client may come again at once. The server ends after a success,
//! and when a failure can no longer be answered.

use std::sync::Arc;

use tokio::sync::watch;

use crate::job::{UploadJob, UploadSuccess};

/// The state of the server.
#[derive(Clone)]
pub(crate) enum ServerState {
    /// Waiting for an upload.
    Idle,
    /// Receiving or writing one.
    Busy(Arc<UploadJob>),
    /// There was one.
    Done(UploadSuccess),
    /// An upload failed after its client was told that all is well.
    Broken(String),
}

/// A place that is not free, so that no upload may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SlotOccupied {
    /// Another upload is in progress.
    #[error("Got concurrent upload request")]
    Busy,
    /// There was one.
    #[error("Got upload request after already done")]
    Done,
}

impl SlotOccupied {
    /// The reason for the client, and what to do.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Busy => "another upload is in progress: try again when it has ended",
            Self::Done => "an upload has already become the disk: this server takes no other",
        }
    }
}

/// The place for an upload.
#[derive(Clone)]
pub(crate) struct UploadSlot {
    state: Arc<watch::Sender<ServerState>>,
    /// End after the first success.
    once: bool,
}

impl UploadSlot {
    pub(crate) fn new(once: bool) -> Self {
        Self { state: Arc::new(watch::Sender::new(ServerState::Idle)), once }
    }

    /// The state of the server now.
    pub(crate) fn state(&self) -> ServerState {
        self.state.borrow().clone()
    }

    /// The upload that is in progress.
    pub(crate) fn current_job(&self) -> Option<Arc<UploadJob>> {
        match self.state() {
            ServerState::Busy(job) => Some(job),
            ServerState::Idle | ServerState::Done(_) | ServerState::Broken(_) => None,
        }
    }

    /// The place for `job`, if it is free.
    pub(crate) fn claim_for(&self, job: &Arc<UploadJob>) -> Result<(), SlotOccupied> {
        let mut result = Ok(());
        self.state.send_if_modified(|state| {
            result = match state {
                ServerState::Idle => Ok(()),
                ServerState::Busy(_) => Err(SlotOccupied::Busy),
                ServerState::Done(_) | ServerState::Broken(_) => Err(SlotOccupied::Done),
            };
            if result.is_ok() {
                *state = ServerState::Busy(Arc::clone(job));
            }
            result.is_ok()
        });
        result
    }

    /// The upload has become a disk.
    pub(crate) fn set_success(&self, success: UploadSuccess) {
        self.state.send_replace(if self.once { ServerState::Done(success) } else { ServerState::Idle });
    }

    /// The upload has failed, and its client knows: the next one may begin.
    pub(crate) fn release(&self) {
        self.state.send_replace(ServerState::Idle);
    }

    /// The upload has failed, and its client does not know.
    pub(crate) fn break_down(&self, reason: String) {
        self.state.send_replace(ServerState::Broken(reason));
    }

    /// Waits for a state that is `wanted`, and returns it.
    pub(crate) async fn wait_for(&self, wanted: impl Fn(&ServerState) -> bool) -> ServerState {
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| wanted(state)).await;
        // The sender lives in `self`.
        state.map_or(ServerState::Idle, |state| state.clone())
    }
}

impl ServerState {
    /// True if no upload is in progress.
    pub(crate) fn is_at_rest(&self) -> bool {
        !matches!(self, Self::Busy(_))
    }

    /// True if the server has nothing left to do.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Broken(_))
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::figures::ServerMetrics;
    use crate::job::{BodyContent, UploadPlan};

    const SUCCESS: UploadSuccess = UploadSuccess { content: BodyContent::Image, preallocated: true };

    fn job() -> Arc<UploadJob> {
        Arc::new(UploadJob::new(
            UploadPlan::default(),
            CancellationToken::new(),
            ServerMetrics::default().transfers,
        ))
    }

    #[test]
    fn one_at_a_time_and_one_in_all() {
        let slot = UploadSlot::new(true);
        assert_eq!(slot.claim_for(&job()), Ok(()));
        assert_eq!(slot.claim_for(&job()), Err(SlotOccupied::Busy));
        slot.release();
        assert_eq!(slot.claim_for(&job()), Ok(()));
        slot.set_success(SUCCESS);
        assert_eq!(slot.claim_for(&job()), Err(SlotOccupied::Done));
        assert!(slot.state().is_final());
    }

    #[test]
    fn a_server_for_many_is_free_after_each() {
        let slot = UploadSlot::new(false);
        for _ in 0..3 {
            assert_eq!(slot.claim_for(&job()), Ok(()));
            slot.set_success(SUCCESS);
        }
        slot.break_down("x".to_owned());
        assert_eq!(slot.claim_for(&job()), Err(SlotOccupied::Done));
    }
}
