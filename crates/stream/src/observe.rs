//! The progress of a transfer: [`Stage`], [`TransferPhase`], and the events that report them. The
//! data path does not depend on a metrics library.
//!
//! | | [`Stage`]: where | [`TransferPhase`]: how far |
//! | --- | --- | --- |
//! | log | in sentences | CDI's `New phase: Info`, `TransferDataFile`, `Resize`, `Complete` |
//! | metrics | the label `stage` of `cdi_transfer_{retries,errors,stage_seconds}_total` | |
//! | status of an upload server | | `stage` |
//! | JSON of the command line | `stage` of an error | |
//!
//! Stages overlap, so their times do not show which of them made a transfer slow. [`LimitingPart`]
//! does.
//!
//! Neither of them describes a server without a transfer. An upload server has a separate state
//! for that, the label of `cdi_uploadserver_state`.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::error::{SourceError, SourceErrorKind};
use crate::facts::ImageFacts;
pub use crate::stage::{LimitingPart, Stage};

/// The steps of a transfer, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferPhase {
    /// The head of the source is read: layers, format, sizes.
    Info,
    /// Data is copied from the source to the target.
    Transfer,
    /// The disk gets its final size.
    Resize,
    /// Everything is verified and on the disk.
    Complete,
}

impl TransferPhase {
    /// The lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Transfer => "transfer",
            Self::Resize => "resize",
            Self::Complete => "complete",
        }
    }
}

/// A duration to which several threads add.
#[derive(Debug, Default)]
pub struct SharedTime(AtomicU64);

impl SharedTime {
    /// Adds `time` to the sum.
    pub fn add_time(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The sum so far.
    pub(crate) fn total_time(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// The sum since the last call.
    pub fn take_time(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }
}

/// The kinds of bytes that are counted by every program that writes or sends a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteCount {
    /// Bytes of the source that were consumed.
    Source,
    /// Bytes that were written to the target, or sent to it.
    Target,
    /// Zeros that did not have to be written.
    Skipped,
}

impl ByteCount {
    /// All counts. A new count also needs a call of [`Observer::record_bytes`] where its bytes
    /// pass.
    pub const ALL: [Self; 3] = [Self::Source, Self::Target, Self::Skipped];

    /// The name and the help text of the count's metric.
    pub const fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Source => ("source_bytes", "Bytes of the source that were consumed."),
            Self::Target => {
                ("target_bytes", "Bytes that were written to the target, or sent to it.")
            }
            Self::Skipped => (
                "skipped_bytes",
                "Zero bytes that were not written or sent, such as holes. They are counted when the disk is complete.",
            ),
        }
    }
}

/// An attempt that failed, and the pause before the next one.
#[derive(Debug, Clone)]
pub struct RetryPause<'a> {
    /// Why the attempt failed, in a few words and without secrets, such as `connection refused`.
    pub cause: &'a str,
    /// The whole failure.
    pub error: &'a SourceError,
    /// Number of the next attempt. The first attempt, which has failed, is number 1.
    pub next_attempt: u32,
    /// Time until the next attempt.
    pub pause: Duration,
    /// The longest time of the first contact and the allowed number of its retries, before the
    /// first contact was made.
    pub contact: Option<(Duration, Option<u32>)>,
}

/// The times of a transfer: how long each stage was busy, and how long each part limited the speed.
#[derive(Debug, Default)]
pub struct TransferTimes {
    stages: [SharedTime; Stage::ALL.len()],
    limits: [SharedTime; LimitingPart::ALL.len()],
    /// Most connections to the source at a time; 0 if unknown.
    connections: AtomicUsize,
}

impl TransferTimes {
    /// Adds `time` to the total of `stage`. Stages and threads overlap.
    pub fn add_time(&self, stage: Stage, time: Duration) {
        self.stages[stage as usize].add_time(time);
    }

    /// Adds `time` to the time that was limited by `part`. These times do not overlap.
    pub fn add_limit(&self, part: LimitingPart, time: Duration) {
        self.limits[part as usize].add_time(time);
    }

    /// Records that the source is read over `open` connections from now on.
    pub fn record_connections(&self, open: usize) {
        self.connections.fetch_max(open, Ordering::Relaxed);
    }

    /// Most connections to the source at a time, if that is known.
    pub fn most_connections(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.connections.load(Ordering::Relaxed))
    }

    /// The total time of each stage so far.
    pub fn stage_times(&self) -> [(Stage, Duration); Stage::ALL.len()] {
        Stage::ALL.map(|stage| (stage, self.stages[stage as usize].total_time()))
    }

    /// The time that each part has limited so far.
    pub fn limit_times(&self) -> [(LimitingPart, Duration); LimitingPart::ALL.len()] {
        LimitingPart::ALL.map(|part| (part, self.limits[part as usize].total_time()))
    }

    /// The seconds of each stage, by the stage's name.
    pub fn stage_seconds(&self) -> BTreeMap<&'static str, f64> {
        seconds_by_name(self.stage_times(), Stage::name)
    }

    /// The seconds that each part has limited, by the part's name.
    pub fn limited_seconds(&self) -> BTreeMap<&'static str, f64> {
        seconds_by_name(self.limit_times(), LimitingPart::name)
    }

    /// The end of a summary for people after `time`: a line break and what limited the speed.
    /// Below a second the times mean nothing, and the text is empty. `has_rate` is true if the
    /// user limited the rate, which no part of the transfer counts as its own time.
    pub fn limits_suffix(&self, time: Duration, has_rate: bool) -> String {
        let limited: Duration = self.limit_times().into_iter().map(|(_, time)| time).sum();
        if time < Duration::from_secs(1) {
            String::new()
        } else if has_rate && limited < time / 2 {
            "\nlimited by: --limit-rate".to_owned()
        } else {
            format!("\n{}", self.limits_line())
        }
    }

    /// The times as a line: `limited by: source 9.8 s, decoder 0.1 s, target 0.2 s`.
    pub fn limits_line(&self) -> String {
        let listed = self
            .limit_times()
            .map(|(part, time)| format!("{} {:.1} s", part.name(), time.as_secs_f64()));
        format!("limited by: {}", listed.join(", "))
    }
}

fn seconds_by_name<T, const N: usize>(
    times: [(T, Duration); N],
    name: fn(T) -> &'static str,
) -> BTreeMap<&'static str, f64> {
    times.into_iter().map(|(part, time)| (name(part), time.as_secs_f64())).collect()
}

/// Receives events from the threads of a transfer and of its source. Every method must return at
/// once.
pub trait Observer: Send + Sync {
    /// A new phase begins.
    fn begin_phase(&self, _phase: TransferPhase) {}
    /// The image was recognised. Called once, before the first data byte.
    fn record_image(&self, _facts: &ImageFacts) {}
    /// `position` bytes of the source were consumed, of `total` if the source knows its size.
    /// Called for each chunk.
    fn source_position(&self, _position: u64, _total: Option<u64>) {}
    /// The count has reached `total` bytes. Called from time to time.
    fn record_bytes(&self, _count: ByteCount, _total: u64) {}
    /// An attempt to read the source failed with an error of this kind and will be retried.
    fn record_retry(&self, _kind: SourceErrorKind) {}
    /// The source pauses before its next attempt.
    fn begin_wait(&self, _pause: &RetryPause<'_>) {}
    /// The source delivers bytes again, or has given up.
    fn end_wait(&self) {}
    /// The source is read over `open` connections from now on, because of `reason`.
    fn record_connections(&self, _open: usize, _reason: &str) {}
    /// Adds `time` to the time spent in `stage`. Called for each chunk.
    fn record_time(&self, _stage: Stage, _time: Duration) {}
    /// Adds `time` to the time in which `part` limited the transfer. Called for each chunk.
    fn record_limit(&self, _part: LimitingPart, _time: Duration) {}
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

impl NoObserver {
    /// Returns this observer in an `Arc`, the form in which the options store it.
    pub fn new_shared() -> Arc<dyn Observer> {
        Arc::new(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_all_parts_are_listed() {
        let times = TransferTimes::default();
        times.add_limit(LimitingPart::Source, Duration::from_millis(9000));
        times.add_limit(LimitingPart::Source, Duration::from_millis(800));
        times.add_limit(LimitingPart::Target, Duration::from_millis(160));
        times.add_time(Stage::Target, Duration::from_secs(7));
        let line = "limited by: source 9.8 s, decoder 0.0 s, target 0.2 s";
        assert_eq!(times.limits_line(), line);
        assert_eq!(times.limited_seconds()["source"], 9.8);
        assert_eq!(times.stage_seconds()["target"], 7.0);
    }
}
