//! A running upload in numbers, words and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use program::progress::{BinaryBytes, JobMoment, WaitEvent, WaitState, WatchedJob, emit_event};
use serde::Serialize;

use crate::cluster::ImportProgress;
use crate::send::UploadWatch;

/// A line of `--progress json`. Documented in `docs/kubectl-cdi.md`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum UploadEvent<'a> {
    /// Once a second.
    Progress {
        image_bytes: u64,
        image_total: u64,
        sent_bytes: u64,
        waiting_for: Option<String>,
        waiting: Option<WaitEvent>,
    },
    /// The last line of a success.
    Done {
        target: String,
        image_bytes: u64,
        sent_bytes: u64,
        sent_again_bytes: u64,
        resumable: bool,
        seconds: f64,
        retries: u64,
        warnings: Vec<String>,
    },
    /// The last line of an import that has succeeded.
    Imported { target: &'a str, warnings: Vec<String> },
    /// The last line of a failure.
    Error { message: String, code: u8, retries: u64, warnings: Vec<String> },
}

/// The view of an upload that is displayed.
#[derive(Clone, Default)]
pub(super) struct UploadView {
    pub(super) watch: Arc<UploadWatch>,
    /// Bytes of the image; 0 until they are known.
    pub(super) total: Arc<AtomicU64>,
    /// True from the moment on at which there is a volume that can be filled.
    pub(super) has_volume: Arc<AtomicBool>,
}

impl UploadView {
    /// Shows how far CDI is with an import: as bytes of the disk, and in words.
    pub(super) fn show_import(&self, progress: &ImportProgress) {
        self.total.store(progress.disk_bytes.unwrap_or(0), Ordering::Relaxed);
        self.watch.set_position(progress.filled_bytes().unwrap_or(0));
        self.watch.set_wait_reason(progress.to_string());
    }
}

impl WatchedJob for UploadView {
    fn done_bytes(&self) -> u64 {
        self.watch.image_bytes()
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|total| *total > 0)
    }

    fn wait_state(&self) -> Option<WaitState> {
        self.watch.wait_state()
    }

    fn plain_line(&self, _: &JobMoment) -> String {
        let (done, total) = (self.done_bytes(), self.total_bytes().unwrap_or(0));
        let percent = (u128::from(done) * 100).checked_div(total.into()).unwrap_or(0);
        let (done, total, sent) =
            (BinaryBytes(done), BinaryBytes(total), BinaryBytes(self.watch.handed_over()));
        format!("{percent} %, {done} of {total}, {sent} sent")
    }

    fn emit_json(&mut self, moment: &JobMoment) {
        emit_event(&UploadEvent::Progress {
            image_bytes: self.done_bytes(),
            image_total: self.total_bytes().unwrap_or(0),
            sent_bytes: self.watch.handed_over(),
            waiting_for: moment.wait.as_ref().map(|wait| wait.cause.clone()),
            waiting: moment.wait.as_ref().map(|wait| wait.to_event(moment.now)),
        });
    }
}
