//! A running upload in numbers, words and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use indicatif::BinaryBytes;
use program::progress::{Watched, emit};
use serde::Serialize;

use crate::send::Watch;

/// A line of `--progress json`. Documented in `docs/kubectl-cdi.md`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    /// Once a second.
    Progress {
        image_bytes: u64,
        image_total: u64,
        sent_bytes: u64,
        waiting_for: Option<String>,
    },
    /// The last line of a success.
    Done {
        target: String,
        image_bytes: u64,
        sent_bytes: u64,
        sent_again_bytes: u64,
        resumable: bool,
        seconds: f64,
    },
    /// The last line of an import that has succeeded.
    Imported { target: &'a str },
    /// The last line of a failure.
    Error { message: String, code: u8 },
}

/// The view of an upload that is displayed.
#[derive(Clone, Default)]
pub(super) struct View {
    pub(super) watch: Arc<Watch>,
    /// Bytes of the image; 0 until they are known.
    pub(super) total: Arc<AtomicU64>,
    /// True from the moment on at which there is a volume that can be filled.
    pub(super) has_volume: Arc<AtomicBool>,
}

impl Watched for View {
    fn position(&self) -> u64 {
        self.watch.image_bytes()
    }

    fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|total| *total > 0)
    }

    fn waiting(&self) -> Option<String> {
        self.watch.waiting()
    }

    fn line(&mut self) -> String {
        let (done, total) = (self.position(), self.total().unwrap_or(0));
        if let Some(waiting) = self.waiting() {
            return waiting;
        }
        let percent = (u128::from(done) * 100).checked_div(total.into()).unwrap_or(0);
        let (done, total, sent) = (
            BinaryBytes(done),
            BinaryBytes(total),
            BinaryBytes(self.watch.handed_over()),
        );
        format!("{percent} %, {done} of {total}, {sent} sent")
    }

    fn emit(&mut self) {
        emit(&Event::Progress {
            image_bytes: self.position(),
            image_total: self.total().unwrap_or(0),
            sent_bytes: self.watch.handed_over(),
            waiting_for: self.waiting(),
        });
    }
}
