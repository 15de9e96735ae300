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
//! Neither of them describes a server without a transfer. An upload server has a separate state
//! for that, the label of `cdi_uploadserver_state`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::SourceErrorKind;
use crate::facts::ImageFacts;

/// Shortest time of a stage that is worth mentioning.
const SLOW_PART: Duration = Duration::from_secs(1);

/// The parts of a transfer. They work at the same time, and each failure belongs to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reads the source. Failures: not found, refused, interrupted, changed.
    Source,
    /// Decompresses. Failures: a layer is corrupt, unsupported or over its limits.
    Decode,
    /// Finds the guest's data. Failures: the image is invalid, unsupported or refers to another
    /// file.
    Format,
    /// Writes the disk. Failures: no space, too small, I/O error.
    Target,
}

impl Stage {
    /// All stages, in the order in which bytes pass through them.
    pub const ALL: [Self; 4] = [Self::Source, Self::Decode, Self::Format, Self::Target];

    /// The lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Decode => "decode",
            Self::Format => "format",
            Self::Target => "target",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
pub(crate) struct SharedTime(AtomicU64);

impl SharedTime {
    /// Adds `time` to the sum.
    pub(crate) fn add_time(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The sum so far.
    pub(crate) fn total_time(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// The sum since the last call.
    pub(crate) fn take_time(&self) -> Duration {
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
    /// Number of the next attempt. The first attempt, which has failed, is number 1.
    pub next_attempt: u32,
    /// Time until the next attempt.
    pub pause: Duration,
}

/// The time that each stage of a transfer took. Stages and threads overlap.
#[derive(Debug, Default)]
pub struct StageTimes([SharedTime; Stage::ALL.len()]);

impl StageTimes {
    /// Adds `time` to the total of `stage`.
    pub fn add_time(&self, stage: Stage, time: Duration) {
        self.0[stage as usize].add_time(time);
    }

    /// The total time of each stage so far.
    pub fn all_times(&self) -> [(Stage, Duration); Stage::ALL.len()] {
        Stage::ALL.map(|stage| (stage, self.0[stage as usize].total_time()))
    }

    /// The seconds of each stage, by the stage's name.
    pub fn seconds_by_name(&self) -> BTreeMap<&'static str, f64> {
        self.all_times()
            .into_iter()
            .map(|(stage, time)| (stage.name(), time.as_secs_f64()))
            .collect()
    }

    /// Returns `summary`, with an additional line if one stage took most of the transfer's time.
    pub fn add_slow_part(&self, summary: String) -> String {
        match self.slow_part() {
            Some(slow_part) => format!("{summary}\n{slow_part}"),
            None => summary,
        }
    }

    /// Lists the times of all stages that were used and names the slowest: `source 3.0 s, target
    /// 0.2 s: the source is the bottleneck`. `None` if no stage stands out, or if all were fast.
    fn slow_part(&self) -> Option<String> {
        let times = self.all_times();
        let (slowest, longest) = times.into_iter().max_by_key(|(_, time)| *time)?;
        let others: Duration =
            times.iter().filter(|(stage, _)| *stage != slowest).map(|(_, time)| *time).sum();
        if longest < SLOW_PART || longest < others * 2 {
            return None;
        }
        let used = times.iter().filter(|(_, time)| !time.is_zero());
        let listed: Vec<_> =
            used.map(|(stage, time)| format!("{stage} {:.1} s", time.as_secs_f64())).collect();
        Some(format!("{}: the {slowest} is the bottleneck", listed.join(", ")))
    }
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
    /// Adds `time` to the time spent in `stage`. Called for each chunk.
    fn record_time(&self, _stage: Stage, _time: Duration) {}
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
    fn the_stage_that_takes_most_of_the_time_is_named() {
        let times = StageTimes::default();
        assert_eq!(times.slow_part(), None);
        times.add_time(Stage::Target, Duration::from_millis(900));
        assert_eq!(times.slow_part(), None, "too quick to matter");
        times.add_time(Stage::Source, Duration::from_secs(1));
        assert_eq!(times.slow_part(), None, "nothing stands out");
        times.add_time(Stage::Source, Duration::from_secs(2));
        let sentence = "source 3.0 s, target 0.9 s: the source is the bottleneck";
        assert_eq!(times.slow_part().as_deref(), Some(sentence));
    }
}
