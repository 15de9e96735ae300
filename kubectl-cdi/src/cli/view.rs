//! The progress of an upload, an import or a download, for the progress display and for JSON
//! events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use program::progress::{
    BinaryBytes, JobMoment, ProgressArgs, ProgressDisplay, WaitEvent, WaitState, WatchedJob,
    emit_event,
};
use serde::Serialize;

use super::PROGRAM;
use crate::cluster::ImportProgress;
use crate::error::PluginError;
use crate::send::UploadWatch;

/// An event line of `--progress json`, documented in `docs/use/kubectl-cdi.md`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum VolumeJobEvent<'a> {
    /// Emitted once a second.
    Progress {
        image_bytes: u64,
        image_total: u64,
        sent_bytes: u64,
        waiting_for: Option<String>,
        waiting: Option<WaitEvent>,
    },
    /// Emitted once a second by a download.
    #[serde(rename = "progress")]
    Receiving {
        disk_bytes: u64,
        disk_total: u64,
        received_bytes: u64,
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
    /// The last line of a successful download.
    #[serde(rename = "done")]
    Downloaded {
        source: String,
        disk_bytes: u64,
        received_bytes: u64,
        seconds: f64,
        retries: u64,
        warnings: Vec<String>,
    },
    /// The last line of a failed job.
    Error { message: String, code: u8, retries: u64, warnings: Vec<String> },
}

/// The state of a job, shared between the job and the display.
#[derive(Clone, Default)]
pub(super) struct VolumeJobView {
    pub(super) watch: Arc<UploadWatch>,
    /// Size in bytes of the image or, for an import or a download, of the disk; 0 until it is
    /// known.
    pub(super) total: Arc<AtomicU64>,
    /// True as soon as a volume exists that can be filled.
    pub(super) has_volume: Arc<AtomicBool>,
    is_download: bool,
}

impl VolumeJobView {
    /// Creates the view of a download. The default is for the other jobs.
    pub(super) fn of_download() -> Self {
        Self { is_download: true, ..Self::default() }
    }

    /// Runs `job` and shows its progress, and then its result or its error. `conclude` gets the
    /// result, the time in seconds and the warnings, and returns the summary and the last event. A
    /// job without a result has no summary.
    pub(super) fn run_shown<'a, T>(
        &self,
        shown: &ProgressArgs,
        job: impl FnOnce() -> Result<Option<T>, PluginError>,
        conclude: impl FnOnce(T, f64, Vec<String>) -> (String, VolumeJobEvent<'a>),
    ) -> Result<(), PluginError> {
        let display = ProgressDisplay::from_args(PROGRAM, shown.progress, &shown.output);
        let started = Instant::now();
        let result = display.run_watched(self.clone(), job);
        let (seconds, warnings) = (started.elapsed().as_secs_f64(), display.warnings());
        match result {
            Ok(None) => Ok(()),
            Ok(Some(result)) => {
                let (summary, event) = conclude(result, seconds, warnings);
                display.show_summary(|| summary, &event);
                Ok(())
            }
            Err(failed) => {
                display.conclude_failed(&VolumeJobEvent::Error {
                    message: failed.to_string(),
                    code: failed.exit.exit_code(),
                    retries: self.watch.retries(),
                    warnings,
                });
                Err(failed)
            }
        }
    }

    /// Updates the displayed progress of an import: the bytes of the disk, and a sentence.
    pub(super) fn show_import(&self, progress: &ImportProgress) {
        self.total.store(progress.disk_bytes.unwrap_or(0), Ordering::Relaxed);
        self.watch.set_position(progress.filled_bytes().unwrap_or(0));
        self.watch.set_wait_reason(progress.to_string());
    }
}

impl WatchedJob for VolumeJobView {
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
        let (done, passed) = (self.done_bytes(), BinaryBytes(self.watch.handed_over()));
        let verb = if self.is_download { "received" } else { "sent" };
        // A resumed download has bytes before the pod has said how many there are.
        let Some(total) = self.total_bytes() else {
            return format!("{}, {passed} {verb}", BinaryBytes(done));
        };
        let percent = (u128::from(done) * 100).checked_div(total.into()).unwrap_or(0);
        let (done, total) = (BinaryBytes(done), BinaryBytes(total));
        format!("{percent} %, {done} of {total}, {passed} {verb}")
    }

    fn emit_json(&mut self, moment: &JobMoment) {
        let (done, total) = (self.done_bytes(), self.total_bytes().unwrap_or(0));
        let passed = self.watch.handed_over();
        let waiting_for = moment.wait.as_ref().map(|wait| wait.cause.clone());
        let waiting = moment.wait.as_ref().map(|wait| wait.to_event(moment.now));
        emit_event(&match self.is_download {
            false => VolumeJobEvent::Progress {
                image_bytes: done,
                image_total: total,
                sent_bytes: passed,
                waiting_for,
                waiting,
            },
            true => VolumeJobEvent::Receiving {
                disk_bytes: done,
                disk_total: total,
                received_bytes: passed,
                waiting_for,
                waiting,
            },
        });
    }
}
