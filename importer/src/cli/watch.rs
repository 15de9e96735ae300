//! Records the state of a running transfer for the progress display.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use program::progress::{PlannedRetry, WaitState};
use reporting::watch::log_slow_part;
use serde::Serialize;
use stream::error::SourceErrorKind;
use stream::facts::ImageFacts;
use stream::observe::{
    ByteCount, LimitingPart, Observer, RetryPause, Stage, TransferPhase, TransferTimes,
};

use super::format_chain;

/// The connections to the source.
#[derive(Debug, Clone, Serialize)]
pub(super) struct OpenConnections {
    open: usize,
    reason: String,
}

/// Collects the events of a transfer. The counters are atomic, and the lock is held only to copy
/// or replace a value, so readers do not delay the transfer, and the transfer does not delay
/// readers.
#[derive(Debug, Default)]
pub(super) struct TransferWatch {
    position: AtomicU64,
    /// Size of the source in bytes; 0 while it is unknown. An empty object needs no other value,
    /// because it has no progress to show either.
    total: AtomicU64,
    written: AtomicU64,
    facts: OnceLock<ImageFacts>,
    retries: AtomicU64,
    waiting: Mutex<Option<WaitState>>,
    connections: Mutex<Option<OpenConnections>>,
    times: TransferTimes,
}

impl Observer for TransferWatch {
    fn begin_phase(&self, phase: TransferPhase) {
        tracing::debug!("phase {}", phase.name());
        if phase == TransferPhase::Complete {
            log_slow_part(&self.times, self.consumed_bytes(), self.written_bytes());
        }
    }

    fn record_image(&self, facts: &ImageFacts) {
        tracing::info!(route = %facts.route, virtual_size = facts.virtual_size, "the image is {}", format_chain(facts));
        self.facts.get_or_init(|| facts.clone());
    }

    fn source_position(&self, position: u64, total: Option<u64>) {
        self.position.store(position, Ordering::Relaxed);
        self.total.store(total.unwrap_or(0), Ordering::Relaxed);
    }

    fn record_bytes(&self, count: ByteCount, total: u64) {
        if count == ByteCount::Target {
            // Several writers report totals, so an older total may arrive after a newer one.
            self.written.fetch_max(total, Ordering::Relaxed);
        }
    }

    fn record_retry(&self, _: SourceErrorKind) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    fn begin_wait(&self, pause: &RetryPause<'_>) {
        // The first failure is shown in full, at a level that no option hides and that does not
        // count as a warning of the result. The later ones replace the bar, or add short lines.
        if let (2, Some((time, retries))) = (pause.next_attempt, pause.contact) {
            let bound = match retries {
                Some(retries) => format!("up to {retries} more times"),
                None => format!("for up to {} s", time.as_secs()),
            };
            let sentence = pause.error.plain_words();
            tracing::error!("{sentence}; trying again {bound} (--retries 0: not at all)");
        }
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        *waiting = Some(WaitState {
            party: None,
            cause: pause.cause.to_owned(),
            // Consecutive pauses without a byte between them count as one wait.
            since: waiting.as_ref().map_or(now, |wait| wait.since),
            retry: Some(PlannedRetry { attempt: pause.next_attempt, at: now + pause.pause }),
        });
    }

    fn end_wait(&self) {
        self.waiting.lock().take();
    }

    fn record_connections(&self, open: usize, reason: &str) {
        self.times.record_connections(open);
        *self.connections.lock() = Some(OpenConnections { open, reason: reason.to_owned() });
    }

    fn record_time(&self, stage: Stage, time: Duration) {
        self.times.add_time(stage, time);
    }

    fn record_limit(&self, part: LimitingPart, time: Duration) {
        self.times.add_limit(part, time);
    }
}

impl TransferWatch {
    /// Returns the number of source bytes that were consumed.
    pub(super) fn consumed_bytes(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Returns the size of the source in bytes, if it is known.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|&total| total > 0)
    }

    /// Returns the number of bytes that were passed to the target.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the number of failed attempts that were retried.
    pub(super) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Returns the source's current pause before a retry, if it is pausing.
    pub(super) fn wait_state(&self) -> Option<WaitState> {
        self.waiting.lock().clone()
    }

    /// Returns the connections to the source, once its body is read.
    pub(super) fn open_connections(&self) -> Option<OpenConnections> {
        self.connections.lock().clone()
    }

    /// Returns the times of the stages, and of the parts that limited the transfer.
    pub(super) fn times(&self) -> &TransferTimes {
        &self.times
    }

    /// Returns the facts about the image, once it has been recognized.
    pub(super) fn image_facts(&self) -> Option<&ImageFacts> {
        self.facts.get()
    }

    /// Returns the progress in tenths of a percent, or `None` if the total is not known. It stays
    /// below 100 % while the transfer is running, because work remains after the last byte.
    pub(super) fn permille(&self) -> Option<u16> {
        const RUNNING: u16 = 999;
        let permille = u128::from(self.consumed_bytes()) * 1000 / u128::from(self.total_bytes()?);
        Some(u16::try_from(permille).unwrap_or(RUNNING).min(RUNNING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_need_a_total_and_stay_below_one_hundred() {
        let watch = TransferWatch::default();
        watch.source_position(5, None);
        assert_eq!((watch.total_bytes(), watch.permille()), (None, None));
        watch.source_position(1, Some(3));
        assert_eq!(watch.permille(), Some(333));
        watch.source_position(3, Some(3));
        assert_eq!(watch.permille(), Some(999));
        watch.source_position(u64::MAX, Some(u64::MAX - 1));
        assert_eq!(watch.permille(), Some(999));
    }
}
