//! Progress in percent, for CDI's controllers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// 100 % in hundredths of a percent.
const COMPLETE: u64 = 10_000;

/// The share of the work that is completed. The series is absent until its first update, never
/// decreases, and reaches 100 only through [`set_complete`](Self::set_complete). All clones share
/// the value.
#[derive(Debug, Clone, Default)]
pub struct ProgressMetric {
    /// Holds 0 before the first update, and afterwards 1 plus hundredths of a percent. With this
    /// encoding a single `fetch_max` ensures that the series stays absent at first and never
    /// decreases.
    state: Arc<AtomicU64>,
}

impl ProgressMetric {
    /// Records that `done` of `total` bytes are finished. The value is capped at 99.99 %, because
    /// work remains after the last byte. If `total` is 0, the share is unknown and the series does
    /// not change.
    pub fn record_bytes(&self, done: u64, total: u64) {
        if let Some(hundredths) =
            (u128::from(done) * u128::from(COMPLETE)).checked_div(total.into())
        {
            self.raise_to(u64::try_from(hundredths).unwrap_or(COMPLETE).min(COMPLETE - 1));
        }
    }

    /// Records that all work is done: 100 %.
    pub fn set_complete(&self) {
        self.raise_to(COMPLETE);
    }

    fn raise_to(&self, hundredths: u64) {
        // `fetch_max`, because CDI expects a percentage that never decreases (contract §0.7).
        self.state.fetch_max(hundredths + 1, Ordering::Relaxed);
    }

    /// Returns the value with two decimals, never in exponent form, or `None` before the first
    /// update.
    pub(super) fn value_text(&self) -> Option<String> {
        let hundredths = self.state.load(Ordering::Relaxed).checked_sub(1)?;
        // CDI's controllers do not recognize any other format of the number (contract §0.7).
        Some(format!("{}.{:02}", hundredths / 100, hundredths % 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_absent_until_touched_only_grows_and_ends_with_100() {
        let progress = ProgressMetric::default();
        assert_eq!(progress.value_text(), None);
        progress.record_bytes(5, 0);
        assert_eq!(progress.value_text(), None, "the total is not known");
        for (done, total, text) in [
            (0, 10, "0.00"),
            (1, 1_000_000, "0.00"),
            (1, 10_000, "0.01"),
            (4, 10, "40.00"),
            (3, 10, "40.00"),
            (u64::MAX - 1, u64::MAX, "99.99"),
        ] {
            progress.record_bytes(done, total);
            assert_eq!(progress.value_text().as_deref(), Some(text), "{done}/{total}");
        }
        // Only the end of the transfer is 100 %.
        progress.record_bytes(u64::MAX, 1);
        assert_eq!(progress.value_text().as_deref(), Some("99.99"));
        progress.set_complete();
        progress.record_bytes(1, 10);
        assert_eq!(progress.value_text().as_deref(), Some("100.00"));
    }
}
