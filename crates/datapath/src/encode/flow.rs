//! Compression only while it is worth its time: while a slow network is what all else waits for.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes a second up to which a network counts as slow: one of a gigabit, with some room. A pod with CDI's default of three
/// quarters of a CPU compresses little faster than that, and what is sent as it is costs both ends less.
const SLOW_BYTES_PER_SECOND: u64 = 150_000_000;

/// Bytes sent between two looks at the clock.
const LOOK_BYTES: u64 = 4 << 20;

/// State that encoders and the sender share.
pub(super) struct FlowState {
    /// Encoded pieces waiting to be sent from which on the network counts as the bottleneck.
    congested: usize,
    waiting: AtomicUsize,
    bytes_per_second: AtomicU64,
}

impl FlowState {
    pub(super) fn new(congested: usize) -> Self {
        Self {
            congested,
            waiting: AtomicUsize::new(0),
            // Not known yet.
            bytes_per_second: AtomicU64::new(u64::MAX),
        }
    }

    /// A piece is encoded and waits.
    pub(super) fn add_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// A piece is taken by the sender.
    pub(super) fn remove_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// True if the next piece should be compressed.
    pub(super) fn is_slow(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= self.congested
            && self.bytes_per_second.load(Ordering::Relaxed) < SLOW_BYTES_PER_SECOND
    }

    fn record_rate(&self, bytes: u64, time: Duration) {
        let rate = (u128::from(bytes) * 1000).checked_div(time.as_millis()).unwrap_or(u128::MAX);
        self.bytes_per_second.store(u64::try_from(rate).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Measures how fast the stream leaves.
pub(super) struct SendRateMeter {
    since: Instant,
    bytes: u64,
}

impl SendRateMeter {
    pub(super) fn start() -> Self {
        Self { since: Instant::now(), bytes: 0 }
    }

    /// Counts bytes that have left.
    pub(super) fn add_bytes(&mut self, bytes: u64, flow: &FlowState) {
        self.bytes += bytes;
        if self.bytes >= LOOK_BYTES {
            flow.record_rate(self.bytes, self.since.elapsed());
            *self = Self::start();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slow_network_that_is_waited_for_is_worth_it() {
        for (waiting, megabytes, slow) in [(2, 100, true), (1, 100, false), (2, 1000, false)] {
            let flow = FlowState::new(2);
            for _ in 0..waiting {
                flow.add_waiting();
            }
            assert!(!flow.is_slow(), "nobody knows yet");
            flow.record_rate(megabytes * 1_000_000, Duration::from_secs(1));
            assert_eq!(flow.is_slow(), slow, "{waiting} waiting, {megabytes} MB/s");
        }
        let flow = FlowState::new(0);
        flow.record_rate(1, Duration::ZERO);
        assert!(!flow.is_slow());
    }
}
