//! Counters of the tasks that read over connections.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counters of all connections of a body together.
#[derive(Debug, Default)]
pub(super) struct ReceivedCounts {
    bytes: AtomicU64,
    /// Number of requests that have brought a byte.
    started: AtomicUsize,
}

impl ReceivedCounts {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }
}

/// Position and limit of one request. Shared by the task that reads and the task that plans.
#[derive(Debug)]
pub(super) struct ConnectionGauge {
    /// True if the transfer can do without this connection. Then its first failure is reported at
    /// once.
    pub(super) is_additional: bool,
    counts: Arc<ReceivedCounts>,
    start: u64,
    position: AtomicU64,
    limit: AtomicU64,
}

impl ConnectionGauge {
    /// Creates the gauge of a request that begins at `start`.
    pub(super) fn new(counts: &Arc<ReceivedCounts>, start: u64, is_additional: bool) -> Self {
        Self {
            is_additional,
            counts: Arc::clone(counts),
            start,
            position: AtomicU64::new(start),
            limit: AtomicU64::new(u64::MAX),
        }
    }

    /// Records that the next `bytes` have arrived.
    pub(super) fn record_received(&self, bytes: u64) {
        if self.position.fetch_add(bytes, Ordering::Relaxed) == self.start {
            self.counts.started.fetch_add(1, Ordering::Relaxed);
        }
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes that have arrived.
    pub(super) fn received(&self) -> Range<u64> {
        self.start..self.position.load(Ordering::Relaxed)
    }

    /// Offset after the last byte that is wanted; `u64::MAX` without a limit.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit, which must be after the position.
    pub(super) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }
}
