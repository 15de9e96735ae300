//! Segments of an object, each of which one request reads.

use std::iter;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use stream::buffer::CHUNK_BYTES;
use stream::error::SourceErrorKind;
use tokio::sync::Notify;

use super::pump::BridgePump;
use super::{ConnectionOutlet, RemoteObject};

/// Segments begin at a multiple of this, so that chunks stay whole.
const ALIGNMENT: u64 = CHUNK_BYTES as u64;

/// Position and limit of one request. Shared by the task that reads and the task that plans.
#[derive(Debug)]
pub(super) struct ConnectionGauge {
    /// True if the transfer can do without this connection. Then its first failure is reported at
    /// once.
    pub(super) is_additional: bool,
    /// Counts the bytes of all connections of a body.
    total: Arc<AtomicU64>,
    requested: Range<u64>,
    /// From where the request has arrived to where it ends. Both under one lock: bytes beyond a
    /// limit that was just set would be handed over twice.
    left: Mutex<Range<u64>>,
}

impl ConnectionGauge {
    /// Creates the gauge of a request for `range`, whose bytes are added to `total`.
    pub(super) fn new(total: &Arc<AtomicU64>, range: Range<u64>, is_additional: bool) -> Self {
        let left = Mutex::new(range.clone());
        Self { is_additional, total: Arc::clone(total), requested: range, left }
    }

    /// Records that the next `bytes` have arrived. Returns how many of them are wanted.
    pub(super) fn accept(&self, bytes: usize) -> usize {
        let mut left = self.left.lock();
        let most = left.end.saturating_sub(left.start);
        let wanted = usize::try_from(most).map_or(bytes, |most| most.min(bytes));
        left.start += wanted as u64;
        self.total.fetch_add(wanted as u64, Ordering::Relaxed);
        wanted
    }

    /// The bytes that have arrived.
    pub(super) fn received(&self) -> Range<u64> {
        self.requested.start..self.left.lock().start
    }

    /// Offset after the last byte that is wanted.
    pub(super) fn limit(&self) -> u64 {
        self.left.lock().end
    }

    /// Moves the limit to the next aligned offset after another `distance` bytes, but not beyond
    /// the request. Returns where it is now.
    pub(super) fn move_limit(&self, distance: u64) -> u64 {
        let mut left = self.left.lock();
        let limit = left.start.saturating_add(distance).checked_next_multiple_of(ALIGNMENT);
        left.end = limit.unwrap_or(u64::MAX).min(self.requested.end);
        left.end
    }
}

/// A range of the object that one request reads.
pub(super) struct QueuedSegment {
    /// The bytes that were not handed over yet.
    pub(super) range: Range<u64>,
    pub(super) attempt: Option<SegmentAttempt>,
}

/// A request for a segment.
pub(super) struct SegmentAttempt {
    pub(super) pump: BridgePump,
    gauge: Arc<ConnectionGauge>,
    /// Set when the request has ended.
    outcome: Arc<OnceLock<Result<(), SourceErrorKind>>>,
}

impl QueuedSegment {
    /// Creates a segment that nobody reads yet.
    pub(super) fn new(range: Range<u64>) -> Self {
        Self { range, attempt: None }
    }

    /// True if another connection is reading the segment.
    pub(super) fn is_being_read(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.outcome.get().is_none())
    }

    /// True if no byte of the segment has arrived over another connection.
    pub(super) fn is_silent(&self) -> bool {
        self.attempt.as_ref().is_none_or(|attempt| attempt.gauge.received().is_empty())
    }

    /// Returns why the request failed, and where, if bytes are missing.
    pub(super) fn failure(&self) -> Option<(SourceErrorKind, u64)> {
        let attempt = self.attempt.as_ref()?;
        let kind = attempt.outcome.get()?.err()?;
        Some((kind, attempt.gauge.received().end)).filter(|(_, end)| *end < self.range.end)
    }

    /// Takes the second half of the bytes that the request has still to read, if those are at
    /// least `least`.
    pub(super) fn split_off(&mut self, least: u64) -> Option<Range<u64>> {
        let attempt = self.attempt.as_ref().filter(|_| self.is_being_read())?;
        let end = self.range.end;
        let left = end.saturating_sub(attempt.gauge.received().end);
        if left >= least {
            self.range.end = attempt.gauge.move_limit(left / 2);
        }
        Some(self.range.end..end).filter(|half| !half.is_empty())
    }

    /// Spawns a task that requests the segment once, and counts its bytes in `total`. `ended` is
    /// notified when it has ended.
    pub(super) fn start<R: RemoteObject>(
        &mut self,
        remote: &Arc<R>,
        total: &Arc<AtomicU64>,
        ended: &Arc<Notify>,
    ) {
        let range = self.range.clone();
        // The whole segment has room, so that it can arrive before its turn.
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let budget = length.saturating_add(CHUNK_BYTES);
        let gauge = Arc::new(ConnectionGauge::new(total, range.clone(), true));
        let outcome = Arc::new(OnceLock::new());
        let pump = BridgePump::start(remote.network(), budget, |sender| {
            let (reader, ended) = (Arc::clone(remote), Arc::clone(ended));
            let (gauge, outcome) = (Some(Arc::clone(&gauge)), Arc::clone(&outcome));
            let outlet = ConnectionOutlet { sender, is_prompt: false, gauge };
            async move {
                // The second outlet keeps the bridge open until the outcome is known.
                let read = reader.read_ranges(iter::once(range), None, outlet.clone()).await;
                if let Err(error) = &read {
                    tracing::debug!(cause = %error, "an additional connection failed");
                }
                outcome.get_or_init(|| read.map_err(|error| error.kind()));
                drop(outlet);
                ended.notify_one();
                Ok(())
            }
        });
        self.attempt = Some(SegmentAttempt { pump, gauge, outcome });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_a_limit_are_not_accepted() {
        const END: u64 = 3 * ALIGNMENT;
        let total = Arc::default();
        let gauge = ConnectionGauge::new(&total, 100..END - 1, true);
        assert_eq!(gauge.accept(300), 300);
        assert_eq!(gauge.move_limit(1), ALIGNMENT, "chunks stay whole");
        assert_eq!(gauge.accept(CHUNK_BYTES), CHUNK_BYTES - 400);
        assert_eq!(gauge.accept(300), 0);
        assert_eq!(gauge.move_limit(u64::MAX), END - 1);
        assert_eq!((gauge.received(), gauge.limit()), (100..ALIGNMENT, END - 1));
        assert_eq!(total.load(Ordering::Relaxed), ALIGNMENT - 100);
    }
}
