//! Shows a running clone as progress lines and JSON events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use program::progress::{BinaryBytes, JobMoment, WatchedJob, emit_event};
use serde::Serialize;
use stream::observe::{LimitingPart, Observer, Stage, TransferTimes};

use crate::source::Tally;

/// An event that `--progress json` prints on stdout, as one line. The events are documented in
/// `docs/operate/cloner.md`.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum CloneEvent {
    /// Printed once a second. `source_total` is an estimate; it is 0 until it is known.
    Progress { source_bytes: u64, source_total: u64, sent_bytes: u64 },
    /// The last line of a clone that succeeded.
    Done {
        source_bytes: u64,
        sent_bytes: u64,
        encoding: String,
        seconds: f64,
        stage_seconds: BTreeMap<&'static str, f64>,
        limited_seconds: BTreeMap<&'static str, f64>,
        warnings: Vec<String>,
    },
    /// The last line of a clone that failed.
    Error { message: String, code: u8, warnings: Vec<String> },
}

/// The times of a clone. The source is the volume, and the target is the network.
#[derive(Debug, Default)]
pub(super) struct CloneTimes(pub(super) TransferTimes);

impl Observer for CloneTimes {
    fn record_time(&self, stage: Stage, time: Duration) {
        self.0.add_time(stage, time);
    }

    fn record_limit(&self, part: LimitingPart, time: Duration) {
        self.0.add_limit(part, time);
    }
}

/// A clone, in the form that the progress display needs.
pub(super) struct CloneView {
    pub(super) tally: Arc<Tally>,
    /// The approximate number of bytes that will be read; 0 until they are counted.
    pub(super) estimate: Arc<AtomicU64>,
}

impl CloneView {
    fn estimated_bytes(&self) -> u64 {
        self.estimate.load(Ordering::Relaxed)
    }
}

impl WatchedJob for CloneView {
    fn done_bytes(&self) -> u64 {
        self.tally.volume_bytes()
    }

    fn total_bytes(&self) -> Option<u64> {
        // The estimate may be too small, but the displayed total must not be less than the bytes
        // already read.
        let estimate = Some(self.estimated_bytes()).filter(|estimate| *estimate > 0);
        estimate.map(|estimate| estimate.max(self.done_bytes()))
    }

    fn plain_line(&self, _: &JobMoment) -> String {
        format_progress(
            self.tally.volume_bytes(),
            self.tally.stream_bytes(),
            self.estimated_bytes(),
        )
    }

    fn emit_json(&mut self, _: &JobMoment) {
        emit_event(&CloneEvent::Progress {
            source_bytes: self.tally.volume_bytes(),
            source_total: self.estimated_bytes(),
            sent_bytes: self.tally.stream_bytes(),
        });
    }
}

fn format_progress(volume: u64, stream: u64, total: u64) -> String {
    let percent = (u128::from(volume) * 100).checked_div(total.into()).unwrap_or(0).min(100);
    let (volume, stream) = (BinaryBytes(volume), BinaryBytes(stream));
    format!("{percent} %, {volume} read, {stream} sent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_stay_between_0_and_100_whatever_the_estimate() {
        assert_eq!(format_progress(3 << 20, 1 << 20, 0), "0 %, 3.00 MiB read, 1.00 MiB sent");
        assert_eq!(
            format_progress(3 << 20, 1 << 20, 2 << 20),
            "100 %, 3.00 MiB read, 1.00 MiB sent"
        );
    }
}
