//! Records which ranges of the disk have been written, for targets that may not read as zeros.

use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum number of intervals that are kept. Images in guest order need one. Beyond this number
/// the caller fills the smallest gaps with zeros at once; data that arrives for them later
/// overwrites the zeros.
const MAX_INTERVALS: usize = 64 << 10;

/// A set of byte ranges that neither overlap nor touch.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    intervals: BTreeMap<u64, u64>,
}

impl Coverage {
    /// A set that contains everything before `end`.
    pub(super) fn up_to(end: u64) -> Self {
        let mut coverage = Self::default();
        coverage.add_range(0..end);
        coverage
    }

    /// Adds a range.
    pub(super) fn add_range(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Merge all intervals that touch the range: start at the last one that begins at or before
        // its end, and go backwards.
        while let Some((&s, &e)) = self.intervals.range(..=end).next_back()
            && e >= start
        {
            self.intervals.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.intervals.insert(start, end);
    }

    /// The ranges of `[0, size)` that were not added.
    pub(super) fn find_gaps(&self, size: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for (&start, &end) in &self.intervals {
            if start >= size {
                break;
            }
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(end);
        }
        if at < size {
            gaps.push(at..size);
        }
        gaps
    }

    /// If there are too many intervals, returns the smallest gaps, for the caller to fill with
    /// zeros now. They count as covered from then on.
    pub(super) fn close_small_gaps(&mut self) -> Vec<Range<u64>> {
        if self.intervals.len() <= MAX_INTERVALS {
            return Vec::new();
        }
        let last = self.intervals.values().next_back().copied().unwrap_or(0);
        let mut gaps = self.find_gaps(last);
        gaps.sort_unstable_by_key(|gap| gap.end - gap.start);
        // Close half of the gaps at once, so that the list is not built and sorted for every
        // interval.
        gaps.truncate(MAX_INTERVALS / 2);
        for gap in &gaps {
            self.add_range(gap.clone());
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn too_many_intervals_close_the_smallest_gaps() {
        let mut coverage = Coverage::default();
        for i in 0..=MAX_INTERVALS as u64 {
            coverage.add_range(i * 10..i * 10 + 5);
        }
        assert_eq!(coverage.close_small_gaps().len(), MAX_INTERVALS / 2);
        assert!(coverage.intervals.len() <= MAX_INTERVALS / 2 + 1);
        assert!(coverage.close_small_gaps().is_empty());
    }

    proptest! {
        #[test]
        fn coverage_equals_a_bitmap(ranges in prop::collection::vec((0usize..200, 0usize..40), 0..40)) {
            let mut coverage = Coverage::default();
            let mut model = [false; 260];
            for (start, length) in ranges {
                coverage.add_range(start as u64..(start + length) as u64);
                model[start..start + length].fill(true);
            }
            let mut uncovered = [false; 260];
            for gap in coverage.find_gaps(260) {
                prop_assert!(!gap.is_empty());
                let at = |offset: u64| usize::try_from(offset).unwrap();
                uncovered[at(gap.start)..at(gap.end)].fill(true);
            }
            prop_assert!(model.iter().zip(uncovered).all(|(covered, gap)| *covered != gap));
        }
    }
}
