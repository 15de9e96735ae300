//! The minimum speed of a sender. A sender that sends a byte now and then is not silent, and could
//! occupy a worker forever.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::error::{SourceError, SourceErrorKind};

/// The minimum speed, in the terms of curl: `--speed-limit` bytes per second, over `--speed-time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeedLimit {
    /// Bytes per second that must arrive on average.
    pub bytes_per_second: NonZeroU64,
    /// Waiting time over which the average is computed.
    pub time: Duration,
}

/// Default of [`SpeedLimit::time`].
pub const SPEED_TIME: Duration = Duration::from_secs(600);

/// Speed below which a pod gives up, over [`SPEED_TIME`]: 32 kbit/s. At this speed, a disk of 10
/// GB would take a month.
pub const POD_BYTES_PER_SECOND: NonZeroU64 = NonZeroU64::MIN.saturating_add(4095);

/// Measures the speed of one sender. Only time spent waiting for the sender counts, so that a slow
/// disk does not make the sender look slow.
#[derive(Debug)]
pub struct MinSpeedCheck {
    limit: SpeedLimit,
    waited: Duration,
    bytes: u64,
}

impl MinSpeedCheck {
    /// Creates a check for a sender from which no byte has arrived yet.
    pub fn new(limit: SpeedLimit) -> Self {
        Self { limit, waited: Duration::ZERO, bytes: 0 }
    }

    /// Records that `bytes` arrived after a wait of `time`. Returns an error once the waiting time
    /// of the limit is over and too few bytes have arrived in it.
    ///
    /// A single pause counts as at most half of the limit's time. Other timeouts limit how long a
    /// sender may be silent; after a long pause it has the other half of the time to catch up.
    pub fn record_received(&mut self, bytes: u64, time: Duration) -> Result<(), SourceError> {
        self.waited += time.min(self.limit.time / 2);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.waited < self.limit.time {
            return Ok(());
        }
        let (waited, bytes) = (std::mem::take(&mut self.waited), std::mem::take(&mut self.bytes));
        let bytes_per_second = self.limit.bytes_per_second;
        let least = u128::from(bytes_per_second.get()) * waited.as_millis() / 1000;
        if u128::from(bytes) >= least {
            return Ok(());
        }
        let seconds = waited.as_secs();
        let message = format!(
            "the source is too slow: {bytes} bytes arrived in {seconds} seconds of waiting, which is less than {bytes_per_second} per second"
        );
        Err(SourceError::new(SourceErrorKind::Stalled, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: SpeedLimit = SpeedLimit {
        bytes_per_second: NonZeroU64::new(100).unwrap(),
        time: Duration::from_secs(10),
    };

    #[test]
    fn a_byte_a_second_is_too_slow() {
        let mut floor = MinSpeedCheck::new(LIMIT);
        for _ in 0..9 {
            floor.record_received(1, Duration::from_secs(1)).unwrap();
        }
        let slow = floor.record_received(1, Duration::from_secs(1)).unwrap_err();
        assert_eq!(
            slow.to_string(),
            "the source is too slow: 10 bytes arrived in 10 seconds of waiting, which is less than 100 per second"
        );
    }

    #[test]
    fn bytes_before_or_after_a_pause_make_up_for_it() {
        let mut floor = MinSpeedCheck::new(LIMIT);
        floor.record_received(1000, Duration::ZERO).unwrap();
        floor.record_received(0, Duration::from_secs(5)).unwrap();
        floor.record_received(0, Duration::from_secs(5)).unwrap();
        floor.record_received(999, Duration::from_secs(5)).unwrap();
        assert!(floor.record_received(0, Duration::from_secs(5)).is_err());
    }

    #[test]
    fn one_long_pause_is_accepted_but_consecutive_pauses_are_not() {
        const HOURS: Duration = Duration::from_secs(7200);
        let mut floor = MinSpeedCheck::new(LIMIT);
        for _ in 0..10 {
            floor.record_received(1, HOURS).unwrap();
            floor.record_received(999, Duration::from_secs(5)).unwrap();
        }
        floor.record_received(1, HOURS).unwrap();
        assert!(floor.record_received(1, HOURS).is_err());
    }

    #[test]
    fn only_waiting_time_counts() {
        let mut floor = MinSpeedCheck::new(LIMIT);
        for _ in 0..1000 {
            floor.record_received(1, Duration::from_micros(1)).unwrap();
        }
    }
}
