//! The state of a running transfer in numbers, to be shown.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use datapath::facts::ImageFacts;
use datapath::observe::{ByteCount, Observer};

/// Collects the events of a transfer. Reading it never waits for the transfer, nor the other way round.
#[derive(Debug, Default)]
pub(super) struct TransferWatch {
    position: AtomicU64,
    /// 0 while unknown; an object without bytes has no progress to show either.
    total: AtomicU64,
    written: AtomicU64,
    facts: OnceLock<ImageFacts>,
}

impl Observer for TransferWatch {
    fn record_image(&self, facts: &ImageFacts) {
        self.facts.get_or_init(|| facts.clone());
    }

    fn source_position(&self, position: u64, total: Option<u64>) {
        self.position.store(position, Ordering::Relaxed);
        self.total.store(total.unwrap_or(0), Ordering::Relaxed);
    }

    fn record_bytes(&self, count: ByteCount, total: u64) {
        if count == ByteCount::Target {
            self.written.fetch_max(total, Ordering::Relaxed);
        }
    }
}

impl TransferWatch {
    /// Bytes of the source that are consumed.
    pub(super) fn consumed_bytes(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Bytes of the source, if it knows.
    pub(super) fn total_bytes(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|&total| total > 0)
    }

    /// Bytes that were handed to the target.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The facts of the image, once it was recognized.
    pub(super) fn image_facts(&self) -> Option<&ImageFacts> {
        self.facts.get()
    }

    /// Tenths of a percent; below 100 % while the transfer runs, for work remains after the last byte.
    pub(super) fn permille(&self) -> Option<u16> {
        const RUNNING: u16 = 999;
        let permille = u128::from(self.consumed_bytes()) * 1000 / u128::from(self.total_bytes()?);
        Some(u16::try_from(permille).unwrap_or(RUNNING).min(RUNNING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_need_a_total_and_stay_below_one_hundred() {
        let watch = TransferWatch::default();
        watch.source_position(5, None);
        assert_eq!((watch.total_bytes(), watch.permille()), (None, None));
        watch.source_position(1, Some(3));
        assert_eq!(watch.permille(), Some(333));
        watch.source_position(3, Some(3));
        assert_eq!(watch.permille(), Some(999));
        watch.source_position(u64::MAX, Some(u64::MAX - 1));
        assert_eq!(watch.permille(), Some(999));
    }
}
