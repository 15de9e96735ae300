//! Decides whether data is compressed: only while a slow network is the bottleneck.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes per second below which a network counts as slow: a gigabit per second with some margin. A
/// pod with CDI's default of three quarters of a CPU compresses little faster than that, and above
/// this rate uncompressed data costs both ends less.
const SLOW_BYTES_PER_SECOND: u64 = 150_000_000;

/// Bytes sent between two measurements of the rate.
const LOOK_BYTES: u64 = 4 << 20;

/// State shared by the encoders and the sender.
pub(super) struct FlowState {
    /// The network counts as the bottleneck if at least this many encoded pieces wait to be sent.
    congested: usize,
    waiting: AtomicUsize,
    bytes_per_second: AtomicU64,
}

impl FlowState {
    pub(super) fn new(congested: usize) -> Self {
        Self {
            congested,
            waiting: AtomicUsize::new(0),
            // The rate is not known yet, so the network does not count as slow.
            bytes_per_second: AtomicU64::new(u64::MAX),
        }
    }

    /// Records that a piece was encoded and waits to be sent.
    pub(super) fn add_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the sender took a piece.
    pub(super) fn remove_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if the next piece should be compressed.
    pub(super) fn is_slow(&self) -> bool {
        // Both conditions are needed. Queues also fill up on a fast network if the CPUs are the
        // bottleneck, and compressing in that case cost a third of the time.
        self.waiting.load(Ordering::Relaxed) >= self.congested
            && self.bytes_per_second.load(Ordering::Relaxed) < SLOW_BYTES_PER_SECOND
    }

    fn record_rate(&self, bytes: u64, time: Duration) {
        let rate = (u128::from(bytes) * 1000).checked_div(time.as_millis()).unwrap_or(u128::MAX);
        self.bytes_per_second.store(u64::try_from(rate).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Measures the rate at which the stream is sent.
pub(super) struct SendRateMeter {
    since: Instant,
    bytes: u64,
}

impl SendRateMeter {
    pub(super) fn start() -> Self {
        Self { since: Instant::now(), bytes: 0 }
    }

    /// Counts bytes that were sent. Updates the rate in `flow` after every `LOOK_BYTES`.
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
    fn compression_pays_only_when_threads_wait_for_a_slow_network() {
        for (waiting, megabytes, slow) in [(2, 100, true), (1, 100, false), (2, 1000, false)] {
            let flow = FlowState::new(2);
            for _ in 0..waiting {
                flow.add_waiting();
            }
            assert!(!flow.is_slow(), "no rate has been measured yet");
            flow.record_rate(megabytes * 1_000_000, Duration::from_secs(1));
            assert_eq!(flow.is_slow(), slow, "{waiting} waiting, {megabytes} MB/s");
        }
        let flow = FlowState::new(0);
        flow.record_rate(1, Duration::ZERO);
        assert!(!flow.is_slow());
    }
}
