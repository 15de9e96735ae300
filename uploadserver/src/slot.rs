//! The upload slot, which allows one upload at a time. If the server serves only once, it also
//! allows only one success.
//!
//! The slot becomes free before the response is sent, because the client may retry at once. The
//! server exits after a success if it serves only once, and after a failure that can no longer be
//! reported to the client.

use std::sync::Arc;

use tokio::sync::watch;

use crate::job::{UploadJob, UploadSuccess};

/// The state of the server.
#[derive(Clone)]
pub(crate) enum ServerState {
    /// Waiting for an upload.
    Idle,
    /// Receiving or writing an upload.
    Busy(Arc<UploadJob>),
    /// An upload succeeded.
    Done(UploadSuccess),
    /// An upload failed after its client had received a success response.
    Broken(String),
}

/// The reason why the slot is occupied, so that no upload may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SlotOccupied {
    /// Another upload is in progress.
    #[error("Got concurrent upload request")]
    Busy,
    /// An upload has already succeeded.
    #[error("Got upload request after already done")]
    Done,
}

impl SlotOccupied {
    /// Returns the reason to report to the client, and advice on what to do.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Busy => "another upload is in progress: try again when it has ended",
            Self::Done => "the disk has already been uploaded: this server accepts no other upload",
        }
    }
}

/// The slot for the upload in progress.
pub(crate) struct UploadSlot {
    state: watch::Sender<ServerState>,
    /// True if the server exits after the first success.
    once: bool,
}

impl UploadSlot {
    pub(crate) fn new(once: bool) -> Self {
        Self { state: watch::Sender::new(ServerState::Idle), once }
    }

    /// Returns the current state of the server.
    pub(crate) fn state(&self) -> ServerState {
        self.state.borrow().clone()
    }

    /// Returns the upload in progress, if there is one.
    pub(crate) fn current_job(&self) -> Option<Arc<UploadJob>> {
        match self.state() {
            ServerState::Busy(job) => Some(job),
            ServerState::Idle | ServerState::Done(_) | ServerState::Broken(_) => None,
        }
    }

    /// Claims the slot for `job`. Fails if the slot is occupied.
    pub(crate) fn claim_for(&self, job: &Arc<UploadJob>) -> Result<(), SlotOccupied> {
        let mut result = Ok(());
        // The state is compared and changed in one step, because two requests may begin at the
        // same time.
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

    /// Records that the upload succeeded.
    pub(crate) fn set_success(&self, success: UploadSuccess) {
        let state = if self.once { ServerState::Done(success) } else { ServerState::Idle };
        self.state.send_replace(state);
    }

    /// Records that the upload failed and that its client was told. The next upload may then
    /// begin.
    pub(crate) fn release(&self) {
        self.state.send_replace(ServerState::Idle);
    }

    /// Records that the upload failed after its client had received a success response.
    pub(crate) fn break_down(&self, reason: String) {
        self.state.send_replace(ServerState::Broken(reason));
    }

    /// Waits until `pick` returns something for the state, and returns that.
    pub(crate) async fn wait_for<T>(&self, pick: impl Fn(&ServerState) -> Option<T>) -> T {
        let mut states = self.state.subscribe();
        loop {
            if let Some(picked) = pick(&states.borrow_and_update()) {
                return picked;
            }
            // The sender lives in `self`, so this always ends by a change.
            states.changed().await.ok();
        }
    }

    /// Waits until no upload is in progress.
    pub(crate) async fn wait_for_rest(&self) {
        self.wait_for(|state| state.is_at_rest().then_some(())).await;
    }
}

impl ServerState {
    /// Returns true if no upload is in progress.
    pub(crate) fn is_at_rest(&self) -> bool {
        !matches!(self, Self::Busy(_))
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::figures::ServerMetrics;
    use crate::job::{BodyContent, UploadPlan};

    const SUCCESS: UploadSuccess =
        UploadSuccess { content: BodyContent::Image, preallocated: true };

    fn job() -> Arc<UploadJob> {
        Arc::new(UploadJob::new(
            UploadPlan::default(),
            CancellationToken::new(),
            ServerMetrics::default().transfers,
        ))
    }

    #[test]
    fn a_slot_takes_one_upload_at_a_time_and_one_success() {
        let slot = UploadSlot::new(true);
        assert_eq!(slot.claim_for(&job()), Ok(()));
        assert_eq!(slot.claim_for(&job()), Err(SlotOccupied::Busy));
        slot.release();
        assert_eq!(slot.claim_for(&job()), Ok(()));
        slot.set_success(SUCCESS);
        assert_eq!(slot.claim_for(&job()), Err(SlotOccupied::Done));
        assert!(matches!(slot.state(), ServerState::Done(_)));
    }

    #[test]
    fn a_server_for_many_uploads_is_free_after_each() {
        let slot = UploadSlot::new(false);
        for _ in 0..3 {
            assert_eq!(slot.claim_for(&job()), Ok(()));
            slot.set_success(SUCCESS);
        }
        slot.break_down("x".to_owned());
        assert_eq!(slot.claim_for(&job()), Err(SlotOccupied::Done));
    }
}
