//! The least speed of a sender: a byte now and then is not silence, and could keep a worker busy for ever.

use std::num::NonZeroU64;
use std::time::Duration;

/// The least speed, in the words of curl: `--speed-limit` bytes a second, over `--speed-time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpeedLimit {
    /// Bytes a second that have to come on average.
    pub bytes_per_second: NonZeroU64,
    /// Over how much time of waiting.
    pub time: Duration,
}

/// Default of [`SpeedLimit::time`].
pub const SPEED_TIME: Duration = Duration::from_secs(600);

/// Speed below which a pod gives up, over [`SPEED_TIME`]: 32 kbit/s, less than a telephone line had. A disk of 10 GB would take a
/// month.
pub const POD_BYTES_PER_SECOND: NonZeroU64 = NonZeroU64::MIN.saturating_add(4095);

impl SpeedLimit {
    /// The limit of a pod.
    pub const POD: Self = Self { bytes_per_second: POD_BYTES_PER_SECOND, time: SPEED_TIME };
}

/// Less came than has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{bytes} bytes came in {} seconds of waiting, which is less than {bytes_per_second} a second",
    .time.as_secs()
)]
pub struct TooSlowError {
    /// Bytes that came.
    pub bytes: u64,
    /// Time that was waited for them.
    pub time: Duration,
    /// Bytes a second that should have come.
    pub bytes_per_second: NonZeroU64,
}

/// Measures one sender. Only time counts that was spent waiting for it: a slow disk is not its fault.
#[derive(Debug)]
pub struct MinSpeedCheck {
    limit: SpeedLimit,
    waited: Duration,
    bytes: u64,
}

impl MinSpeedCheck {
    /// Nothing has come yet.
    pub fn new(limit: SpeedLimit) -> Self {
        Self { limit, waited: Duration::ZERO, bytes: 0 }
    }

    /// After a wait of `time`, `bytes` came. Fails once the limit's time is over and too little has come in it.
    ///
    /// One long pause counts as half of that time: how long a sender may be silent, others limit, and after the pause it has the
    /// other half to make it good.
    pub fn record_received(&mut self, bytes: u64, time: Duration) -> Result<(), TooSlowError> {
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
        Err(TooSlowError { bytes, time: waited, bytes_per_second })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: SpeedLimit =
        SpeedLimit { bytes_per_second: NonZeroU64::new(100).unwrap(), time: Duration::from_secs(10) };

    #[test]
    fn a_byte_a_second_is_too_slow() {
        let mut floor = MinSpeedCheck::new(LIMIT);
        for _ in 0..9 {
            floor.record_received(1, Duration::from_secs(1)).unwrap();
        }
        let slow = floor.record_received(1, Duration::from_secs(1)).unwrap_err();
        assert_eq!((slow.bytes, slow.time), (10, Duration::from_secs(10)));
        assert_eq!(
            slow.to_string(),
            "10 bytes came in 10 seconds of waiting, which is less than 100 a second"
        );
    }

    #[test]
    fn pauses_are_made_good_by_what_comes_before_and_after() {
        let mut floor = MinSpeedCheck::new(LIMIT);
        floor.record_received(1000, Duration::ZERO).unwrap();
        floor.record_received(0, Duration::from_secs(5)).unwrap();
        floor.record_received(0, Duration::from_secs(5)).unwrap();
        floor.record_received(999, Duration::from_secs(5)).unwrap();
        assert!(floor.record_received(0, Duration::from_secs(5)).is_err());
    }

    #[test]
    fn a_long_pause_is_no_slowness_but_pauses_alone_are() {
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
    fn time_that_nobody_waited_does_not_count() {
        let mut floor = MinSpeedCheck::new(LIMIT);
        for _ in 0..1000 {
            floor.record_received(1, Duration::from_micros(1)).unwrap();
        }
    }
}
