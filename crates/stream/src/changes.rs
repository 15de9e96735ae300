//! Parts of a disk that differ from an earlier state of it.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

/// Ranges of a disk in ascending order. No range is empty, no two touch, and all lie within the
/// disk. Clones share the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedRanges {
    disk_bytes: u64,
    ranges: Arc<[Range<u64>]>,
    zeros: Arc<[Range<u64>]>,
}

impl ChangedRanges {
    /// Creates the list for a disk of `disk_bytes`. Returns `None` unless the `ranges` are
    /// non-empty, in ascending order, do not overlap and lie within the disk. Ranges that touch
    /// are merged.
    pub fn new(disk_bytes: u64, ranges: impl IntoIterator<Item = Range<u64>>) -> Option<Self> {
        let ranges = join_ranges(disk_bytes, ranges)?;
        Some(Self { disk_bytes, ranges, zeros: Arc::default() })
    }

    /// Adds ranges that have become zero, which the source does not deliver. Returns `None` unless
    /// they are in order, lie within the disk and do not overlap the other ranges: zeros are
    /// applied after the data, and would erase it.
    pub fn with_zeros(self, zeros: impl IntoIterator<Item = Range<u64>>) -> Option<Self> {
        let zeros = join_ranges(self.disk_bytes, zeros)?;
        (!have_overlap(&self.ranges, &zeros)).then_some(Self { zeros, ..self })
    }

    /// Size of the whole disk in bytes.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &Arc<[Range<u64>]> {
        &self.ranges
    }

    /// The ranges that have become zero, in order.
    pub fn zero_ranges(&self) -> &[Range<u64>] {
        &self.zeros
    }

    /// Sum of the lengths of all ranges that the source delivers, in bytes.
    pub fn changed_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}

/// Joins ranges that touch. Returns `None` unless `ranges` are in ascending order, not empty, do
/// not overlap and lie within the disk.
fn join_ranges(
    disk_bytes: u64,
    ranges: impl IntoIterator<Item = Range<u64>>,
) -> Option<Arc<[Range<u64>]>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let before = joined.last().map_or(0, |last| last.end);
        if range.is_empty() || range.start < before || range.end > disk_bytes {
            return None;
        }
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    Some(joined.into())
}

/// Returns true if a range of `one` overlaps a range of `other`. Both lists are in order.
fn have_overlap(mut one: &[Range<u64>], mut other: &[Range<u64>]) -> bool {
    while let ([left, one_rest @ ..], [right, other_rest @ ..]) = (one, other) {
        if left.end <= right.start {
            one = one_rest;
        } else if right.end <= left.start {
            other = other_rest;
        } else {
            return true;
        }
    }
    false
}

/// Maps the bytes of a stream to their offsets on the disk. The stream consists of the ranges of
/// some [`ChangedRanges`], one after the other.
pub struct ChangedOffsets {
    ranges: Arc<[Range<u64>]>,
    /// Index of the current range, and the number of its bytes that have arrived.
    index: usize,
    come: u64,
}

impl ChangedOffsets {
    /// Creates the offsets of a stream that contains only `changes`.
    pub fn new(changes: &ChangedRanges) -> Self {
        Self { ranges: Arc::clone(changes.ranges()), index: 0, come: 0 }
    }

    /// Takes the part of `bytes` that lies in the current range. Returns its offset on the disk
    /// and the bytes, or `None` after the last range.
    pub fn take_front(&mut self, bytes: &mut Bytes) -> Option<(u64, Bytes)> {
        let range = self.ranges.get(self.index)?;
        let offset = range.start + self.come;
        let left = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        let front = bytes.split_to(left.min(bytes.len()));
        self.come += front.len() as u64;
        if offset + front.len() as u64 == range.end {
            self.index += 1;
            self.come = 0;
        }
        Some((offset, front))
    }

    /// True if all bytes of all ranges have arrived.
    pub fn is_complete(&self) -> bool {
        self.index == self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_ranges_are_merged_and_invalid_ones_refused() {
        let changes = ChangedRanges::new(100, [0..10, 10..20, 30..100]).unwrap();
        assert_eq!(changes.ranges()[..], [0..20, 30..100]);
        assert_eq!((changes.changed_bytes(), changes.disk_bytes()), (90, 100));
        for wrong in [[5..5, 6..7], [5..8, 7..9], [5..6, 1..2], [5..6, 90..101]] {
            assert_eq!(ChangedRanges::new(100, wrong.clone()), None, "{wrong:?}");
        }
        assert_eq!(ChangedRanges::new(0, []).unwrap().changed_bytes(), 0);
    }

    #[test]
    fn zeros_that_overlap_data_are_refused() {
        let changes = ChangedRanges::new(100, [10..20, 40..50]).unwrap();
        let with_zeros = |zeros: &[Range<u64>]| changes.clone().with_zeros(zeros.iter().cloned());
        let beside = [0..10, 20..40, 50..100];
        assert_eq!(with_zeros(&beside).unwrap().zero_ranges(), beside);
        for wrong in [[0..5, 5..11], [19..40, 50..60], [0..1, 49..50], [0..1, 30..100]] {
            assert_eq!(with_zeros(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn each_byte_of_the_stream_gets_its_disk_offset() {
        let changes = ChangedRanges::new(100, [3..5, 10..14]).unwrap();
        let mut places = ChangedOffsets::new(&changes);
        let mut stream = Bytes::from_static(b"abcde");
        let mut found = Vec::new();
        while !stream.is_empty() {
            found.extend(places.take_front(&mut stream));
        }
        assert!(!places.is_complete());
        let mut rest = Bytes::from_static(b"fg");
        found.extend(places.take_front(&mut rest));
        assert_eq!(
            found.iter().map(|(at, bytes)| (*at, &bytes[..])).collect::<Vec<_>>(),
            [(3, &b"ab"[..]), (10, b"cde"), (13, b"f")]
        );
        assert!(places.is_complete() && places.take_front(&mut rest).is_none() && rest == "g");
    }
}
