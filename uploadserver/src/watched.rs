//! A running upload, as shown by the progress display on a terminal.

use std::sync::Arc;

use program::progress::{BinaryBytes, JobMoment, WaitState, WatchedJob};

use crate::job::UploadJob;

/// An upload, in the form that the progress display needs. The bytes received from the client are
/// counted.
pub(crate) struct WatchedUpload(pub(crate) Arc<UploadJob>);

impl WatchedJob for WatchedUpload {
    fn done_bytes(&self) -> u64 {
        self.0.progress.received_bytes()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.0.progress.total_bytes()
    }

    fn wait_state(&self) -> Option<WaitState> {
        self.0.resumable.waiting_since().map(|since| WaitState {
            party: Some("the client"),
            cause: "the connection broke".to_owned(),
            since: since.into_std(),
            retry: None,
        })
    }

    fn plain_line(&self, _: &JobMoment) -> String {
        format!("{} received", BinaryBytes(self.done_bytes()))
    }

    // No JSON is emitted, because programs read the events in the log instead.
    fn emit_json(&mut self, _: &JobMoment) {}
}
