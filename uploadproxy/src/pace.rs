//! Limits the rate at which bytes are forwarded, with a token bucket for each limit.

use std::num::NonZeroU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Size of the burst that is allowed after a pause, expressed as the time that it takes at the
/// allowed rate.
const BURST: Duration = Duration::from_millis(100);

/// A limit in bytes per second, shared by several uploads.
#[derive(Debug)]
pub(crate) struct SharedRateLimiter {
    rate: NonZeroU64,
    /// Time at which all bytes so far would have been forwarded at the allowed rate.
    paid_until: Mutex<Instant>,
}

impl SharedRateLimiter {
    pub(crate) fn new(rate: NonZeroU64) -> Self {
        Self { rate, paid_until: Mutex::new(Instant::now()) }
    }

    /// Counts `bytes` that are forwarded now. Returns the time at which the next bytes may be
    /// forwarded.
    pub(crate) fn pass_bytes(&self, bytes: usize) -> Instant {
        let seconds = bytes as f64 / self.rate.get() as f64;
        let cost = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let mut paid_until = self.paid_until.lock();
        let now = Instant::now();
        let from = (*paid_until).max(now.checked_sub(BURST).unwrap_or(now));
        *paid_until = from.checked_add(cost).unwrap_or(from);
        *paid_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn senders_that_share_a_limiter_keep_to_its_rate_together() {
        let pace = SharedRateLimiter::new(NonZeroU64::new(1000).unwrap());
        let began = Instant::now();
        for _ in 0..50 {
            tokio::time::sleep_until(pace.pass_bytes(100)).await;
        }
        let seconds = began.elapsed().as_secs_f64();
        assert!((4.9..=5.01).contains(&seconds), "{seconds}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let next = pace.pass_bytes(1100);
        assert_eq!(
            next.duration_since(Instant::now()),
            Duration::from_secs(1),
            "only a short burst"
        );
    }
}
