//! The two words for how a transfer is doing, and the events that say them. The data path knows these and no metrics library.
//!
//! | | [`Stage`]: where | [`TransferPhase`]: how far |
//! | --- | --- | --- |
//! | log | in sentences | `New phase: Info`, `TransferDataFile`, `Resize`, `Complete`, as CDI's importer has it |
//! | metrics | the label `stage` of `cdi_transfer_{retries,errors,stage_seconds}_total` | |
//! | status of an upload server | | `stage` |
//! | JSON of the command line | `stage` of an error | |
//!
//! What a server is doing when no transfer runs is neither: an upload server has a state, the label of `cdi_uploadserver_state`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::facts::ImageFacts;

/// The parts of a transfer, which work at the same time; each failure is one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Bytes do not arrive: not found, refused, cut, changed.
    Source,
    /// A compressed layer is corrupt, unsupported or over its limits.
    Decode,
    /// The disk image is invalid, unsupported or refers to another file.
    Format,
    /// The disk that is written: no space, too small, I/O error.
    Target,
}

impl Stage {
    /// All of them, in the order in which bytes pass.
    pub const ALL: [Self; 4] = [Self::Source, Self::Decode, Self::Format, Self::Target];

    /// The lower-case noun.
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
    /// The head of the source is looked at: layers, format, sizes.
    Info,
    /// Bytes flow from the source to the target.
    Transfer,
    /// The disk gets its final size.
    Resize,
    /// Everything is verified and on the disk.
    Complete,
}

impl TransferPhase {
    /// The lower-case word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Transfer => "transfer",
            Self::Resize => "resize",
            Self::Complete => "complete",
        }
    }
}

/// A time that several threads add to.
#[derive(Debug, Default)]
pub(crate) struct SharedTime(AtomicU64);

impl SharedTime {
    /// Adds `time`.
    pub(crate) fn add_time(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The sum so far.
    pub(crate) fn total_time(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// The sum since the last look.
    pub(crate) fn take_time(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }
}

/// Bytes that every program counts which fills a volume, or sends one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteCount {
    /// Bytes of the source that are consumed.
    Source,
    /// Bytes that are written to the target, or sent to it.
    Target,
    /// Zeros that need not be written.
    Skipped,
}

impl ByteCount {
    /// All of them. Each is counted once its place in the data path calls [`Observer::record_bytes`].
    pub const ALL: [Self; 3] = [Self::Source, Self::Target, Self::Skipped];

    /// The name and the help text of its metric.
    pub const fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Source => ("source_bytes", "Bytes of the source that were consumed."),
            Self::Target => ("target_bytes", "Bytes that were written to the target, or sent to it."),
            Self::Skipped => (
                "skipped_bytes",
                "Bytes of zeros that were not written or sent, such as holes. A disk counts them when it is complete.",
            ),
        }
    }
}

/// Receives events from the threads of a transfer and of its source; every method must return at once.
pub trait Observer: Send + Sync {
    /// A new phase began.
    fn begin_phase(&self, _phase: TransferPhase) {}
    /// The image was recognised; comes once, before the first data byte.
    fn record_image(&self, _facts: &ImageFacts) {}
    /// `position` bytes of the source are consumed, of `total` if the source knows. Called per chunk.
    fn source_position(&self, _position: u64, _total: Option<u64>) {}
    /// The transfer has come to `total` bytes of this count. Called now and then.
    fn record_bytes(&self, _count: ByteCount, _total: u64) {}
    /// An attempt of `stage` failed and is made again.
    fn record_retry(&self, _stage: Stage) {}
    /// `stage` took `time` more. Called per chunk.
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
    /// The shared form, as options hold it.
    pub fn new_shared() -> Arc<dyn Observer> {
        Arc::new(Self)
    }
}
