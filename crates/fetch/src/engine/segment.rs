//! Segments of an object, each of which one request reads.

use std::iter;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stream::buffer::CHUNK_BYTES;
use stream::error::SourceErrorKind;
use tokio::sync::Notify;

use super::gauge::{ConnectionGauge, ReceivedCounts};
use super::pump::BridgePump;
use super::{ConnectionOutlet, RemoteObject};

/// Least number of bytes of which another connection takes half: fewer soon arrive.
const MIN_SPLIT_BYTES: u64 = 512 << 10;

/// Halves begin at a multiple of this, so that chunks stay whole.
const SPLIT_ALIGNMENT: u64 = CHUNK_BYTES as u64;

/// A range of the object that one request reads.
pub(super) struct QueuedSegment {
    /// The bytes that were not handed over yet.
    pub(super) range: Range<u64>,
    pub(super) attempt: Option<SegmentAttempt>,
}

/// A request for a segment.
pub(super) struct SegmentAttempt {
    pub(super) pump: BridgePump,
    pub(super) gauge: Arc<ConnectionGauge>,
    /// Set when the request has ended.
    pub(super) outcome: Arc<OnceLock<Result<(), SourceErrorKind>>>,
    /// True once the rest of a request that failed is queued again.
    pub(super) is_settled: bool,
}

impl QueuedSegment {
    /// True if another connection is reading the segment.
    pub(super) fn is_being_read(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.outcome.get().is_none())
    }

    /// True if no byte of the segment has arrived over another connection.
    pub(super) fn is_silent(&self) -> bool {
        self.attempt.as_ref().is_none_or(|attempt| attempt.gauge.received().is_empty())
    }

    /// Takes the second half of the segment from the request that reads it, if that would still
    /// need more than `min_left`.
    pub(super) fn split_off(&mut self, min_left: Duration) -> Option<Range<u64>> {
        let attempt = self.attempt.as_ref().filter(|_| self.is_being_read())?;
        let (gauge, end) = (&attempt.gauge, self.range.end);
        let position = gauge.received().end;
        let left = end.saturating_sub(position);
        if left < MIN_SPLIT_BYTES || gauge.time_left() < min_left {
            return None;
        }
        self.range.end = gauge.move_limit((position + left / 2).next_multiple_of(SPLIT_ALIGNMENT));
        Some(self.range.end..end).filter(|half| !half.is_empty())
    }
}

impl SegmentAttempt {
    /// Returns why the request failed, if that has not been settled yet.
    pub(super) fn failure(&self) -> Option<SourceErrorKind> {
        self.outcome.get()?.err().filter(|_| !self.is_settled)
    }

    /// Spawns a task that requests `range` once. `ended` is notified when it has ended.
    pub(super) fn start<R: RemoteObject>(
        remote: &Arc<R>,
        range: &Range<u64>,
        counts: &Arc<ReceivedCounts>,
        ended: &Arc<Notify>,
    ) -> Self {
        let gauge = Arc::new(ConnectionGauge::new(counts, range.clone(), true));
        let outcome = Arc::new(OnceLock::new());
        // The whole segment has room, so that it can arrive before its turn.
        let budget = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let budget = budget.saturating_add(CHUNK_BYTES);
        let pump = BridgePump::start(remote.network(), budget, |sender| {
            let (reader, range, ended) = (Arc::clone(remote), range.clone(), Arc::clone(ended));
            let outlet =
                ConnectionOutlet { sender, is_prompt: false, gauge: Some(Arc::clone(&gauge)) };
            let outcome = Arc::clone(&outcome);
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
        Self { pump, gauge, outcome, is_settled: false }
    }
}
