//! Limits log lines that strangers can cause.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Pause between two lines of the same throttle.
const INTERVAL: Duration = Duration::from_secs(1);

/// Lets one log line per second through and counts the others. Without this limit, refused clients
/// wrote 13 MB of log in 5 s.
#[derive(Debug, Default)]
pub struct LogThrottle {
    /// Time of the last line, and the number of lines omitted since.
    state: Mutex<(Option<Instant>, u64)>,
}

impl LogThrottle {
    /// Creates a throttle for a static variable.
    pub const fn new() -> Self {
        Self { state: Mutex::new((None, 0)) }
    }

    /// Calls `write` to log a line, unless the last one is less than a second old. `write` receives
    /// the number of lines that were omitted since, if any.
    pub fn log(&self, write: impl FnOnce(Option<u64>)) {
        if let Some(omitted) = self.admit(Instant::now()) {
            write((omitted > 0).then_some(omitted));
        }
    }

    /// Returns the number of omitted lines if a line may be written at `now`.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let (last, omitted) = &mut *state;
        if last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            *omitted += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_second_counts_the_omitted_ones() {
        let throttle = LogThrottle::new();
        let start = Instant::now();
        let admitted = [0, 1, 999, 1000, 1001, 2500, 9000]
            .map(|after| throttle.admit(start + Duration::from_millis(after)));
        assert_eq!(admitted, [Some(0), None, None, Some(2), None, Some(1), Some(0)]);
    }
}
