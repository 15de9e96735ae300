//! The progress of an upload or an import, for the progress display and for JSON events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use program::progress::{BinaryBytes, JobMoment, WaitEvent, WaitState, WatchedJob, emit_event};
use serde::Serialize;

use crate::cluster::ImportProgress;
use crate::send::UploadWatch;

/// An event line of `--progress json`, documented in `docs/use/kubectl-cdi.md`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum UploadEvent<'a> {
    /// Emitted once a second.
    Progress {
        image_bytes: u64,
        image_total: u64,
        sent_bytes: u64,
        waiting_for: Option<String>,
        waiting: Option<WaitEvent>,
    },
    /// The last line of a successful upload.
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
    /// The last line of a successful import.
    Imported { target: &'a str, warnings: Vec<String> },
    /// The last line of a failed upload or import.
    Error { message: String, code: u8, retries: u64, warnings: Vec<String> },
}

/// The state of a job, shared between the job and the display.
#[derive(Clone, Default)]
pub(super) struct UploadView {
    pub(super) watch: Arc<UploadWatch>,
    /// Size in bytes of the image or, for an import, of the disk; 0 until it is known.
    pub(super) total: Arc<AtomicU64>,
    /// True as soon as a volume exists that can be filled.
    pub(super) has_volume: Arc<AtomicBool>,
}

impl UploadView {
    /// Updates the displayed progress of an import: the bytes of the disk, and a sentence.
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
