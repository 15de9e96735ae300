//! Counters of the tasks that read over connections.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Counters of all connections of a body together.
#[derive(Debug, Default)]
pub(super) struct ReceivedCounts {
    bytes: AtomicU64,
    /// Number of requests that have brought a byte.
    started: AtomicUsize,
    /// Time until the last such request brought its first byte, in milliseconds.
    latency: AtomicU64,
}

impl ReceivedCounts {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }

    /// Returns how long the last request of an additional connection took to bring a byte.
    pub(super) fn latency(&self) -> Duration {
        Duration::from_millis(self.latency.load(Ordering::Relaxed))
    }
}

/// Where a request has arrived, and where it ends.
#[derive(Debug)]
struct RequestProgress {
    position: u64,
    limit: u64,
}

/// Position and limit of one request. Shared by the task that reads and the task that plans.
#[derive(Debug)]
pub(super) struct ConnectionGauge {
    /// True if the transfer can do without this connection. Then its first failure is reported at
    /// once.
    pub(super) is_additional: bool,
    counts: Arc<ReceivedCounts>,
    began: Instant,
    requested: Range<u64>,
    /// Both under one lock: bytes beyond a limit that was just set would be handed over twice.
    progress: Mutex<RequestProgress>,
}

impl ConnectionGauge {
    /// Creates the gauge of a request for `range`.
    pub(super) fn new(
        counts: &Arc<ReceivedCounts>,
        range: Range<u64>,
        is_additional: bool,
    ) -> Self {
        Self {
            is_additional,
            counts: Arc::clone(counts),
            began: Instant::now(),
            progress: Mutex::new(RequestProgress { position: range.start, limit: range.end }),
            requested: range,
        }
    }

    /// Records that the next `bytes` have arrived. Returns how many of them are wanted.
    pub(super) fn accept(&self, bytes: usize) -> usize {
        let mut progress = self.progress.lock();
        let left = progress.limit.saturating_sub(progress.position);
        let wanted = usize::try_from(left).map_or(bytes, |left| left.min(bytes));
        if progress.position == self.requested.start && wanted > 0 {
            self.counts.started.fetch_add(1, Ordering::Relaxed);
            if self.is_additional {
                let latency = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.counts.latency.store(latency, Ordering::Relaxed);
            }
        }
        progress.position += wanted as u64;
        self.counts.bytes.fetch_add(wanted as u64, Ordering::Relaxed);
        wanted
    }

    /// The bytes that have arrived.
    pub(super) fn received(&self) -> Range<u64> {
        self.requested.start..self.progress.lock().position
    }

    /// Offset after the last byte that is wanted.
    pub(super) fn limit(&self) -> u64 {
        self.progress.lock().limit
    }

    /// Moves the limit to `limit`, but not beyond the request, and not before the position. Returns
    /// where it is now.
    pub(super) fn move_limit(&self, limit: u64) -> u64 {
        let mut progress = self.progress.lock();
        progress.limit = limit.min(self.requested.end).max(progress.position);
        progress.limit
    }

    /// Estimates how long the request still takes, if its rate stays.
    pub(super) fn time_left(&self) -> Duration {
        let RequestProgress { position, limit } = *self.progress.lock();
        let received = (position - self.requested.start).max(1);
        let millis = self.began.elapsed().as_millis();
        let left = millis.saturating_mul(u128::from(limit.saturating_sub(position)));
        Duration::from_millis(u64::try_from(left / u128::from(received)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_a_limit_are_not_accepted() {
        let counts = Arc::default();
        let gauge = ConnectionGauge::new(&counts, 100..1000, true);
        assert_eq!(gauge.accept(300), 300);
        assert_eq!(gauge.move_limit(200), 400, "bytes that have arrived stay");
        assert_eq!(gauge.accept(300), 0);
        assert_eq!(gauge.move_limit(500), 500);
        assert_eq!([gauge.accept(60), gauge.accept(60), gauge.accept(60)], [60, 40, 0]);
        assert_eq!((gauge.received(), gauge.limit()), (100..500, 500));
        assert_eq!((counts.bytes(), counts.started()), (400, 1));
    }
}
