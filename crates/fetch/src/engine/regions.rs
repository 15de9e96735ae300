//! Objects whose data is known to be zero in parts. These zeros are generated, not requested.

use std::ops::Range;
use std::sync::Arc;

/// Smaller holes are transferred. Skipping a hole needs another request, which costs a round trip;
/// a fast network transfers about this many bytes in that time.
const SMALL_HOLE_BYTES: u64 = 1 << 20;

/// Ranges in which an object contains data. All other bytes are zeros.
#[derive(Debug, Clone)]
pub struct ObjectRegions(Arc<[Range<u64>]>);

/// Iterator over the ranges of an object to request from the server, in order. The bytes between
/// them are zeros.
#[derive(Debug, Clone)]
pub(super) struct ObjectPieces {
    regions: ObjectRegions,
    left: Range<u64>,
    most: u64,
}

impl ObjectPieces {
    /// Splits the data in `range` into pieces of at most `most` bytes each. Bytes that are not
    /// known to be zero count as data.
    pub(super) fn new(regions: Option<&ObjectRegions>, range: Range<u64>, most: u64) -> Self {
        let all = || ObjectRegions::new(std::iter::once(0..range.end));
        Self { regions: regions.cloned().unwrap_or_else(all), left: range, most }
    }

    /// Returns the next piece, of at most `most` bytes.
    pub(super) fn next_data(&mut self, most: u64) -> Option<Range<u64>> {
        self.most = most;
        self.next()
    }

    /// Lets the next piece begin at `position` or later.
    pub(super) fn continue_at(&mut self, position: u64) {
        self.left.start = position;
    }

    /// Returns the bytes after the last piece.
    pub(super) fn left(&self) -> Range<u64> {
        self.left.clone()
    }
}

impl Iterator for ObjectPieces {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let Range { start: position, end } = self.left;
        let next = self.regions.0.partition_point(|region| region.end <= position);
        let region = self.regions.0.get(next).filter(|region| region.start < end);
        let start = region.map_or(end, |region| region.start.max(position));
        let most = start.saturating_add(self.most);
        self.left.start = region.map_or(end, |region| region.end.min(end).min(most));
        (start < end).then_some(start..self.left.start)
    }
}

impl ObjectRegions {
    /// Creates the regions from ranges of data, which must be in order and not empty. Small holes
    /// between them count as data.
    pub fn new(data: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut regions: Vec<Range<u64>> = Vec::new();
        for range in data {
            match regions.last_mut() {
                Some(last) if range.start.saturating_sub(last.end) < SMALL_HOLE_BYTES => {
                    last.end = range.end
                }
                _ => regions.push(range),
            }
        }
        Self(regions.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_data_of_an_object_is_divided_into_pieces() {
        let regions = ObjectRegions::new([MIB..2 * MIB, 2 * MIB + 512..3 * MIB, 9 * MIB..10 * MIB]);
        let pieces = |range, most| ObjectPieces::new(Some(&regions), range, most);
        let mut whole = pieces(0..12 * MIB, 3 * MIB / 2);
        let expected = [MIB..5 * MIB / 2, 5 * MIB / 2..3 * MIB, 9 * MIB..10 * MIB];
        assert_eq!(whole.by_ref().collect::<Vec<_>>(), expected);
        assert_eq!((whole.left(), whole.next()), (12 * MIB..12 * MIB, None));
        let inside = 9 * MIB + 1..9 * MIB + 5;
        assert_eq!(pieces(inside.clone(), MIB).collect::<Vec<_>>(), [inside]);
        assert_eq!(pieces(3 * MIB..9 * MIB, 1).next(), None);
        assert_eq!(ObjectPieces::new(Some(&ObjectRegions::new([])), 3..5, 1).next(), None);
        assert_eq!(ObjectPieces::new(None, 3..5, 1).collect::<Vec<_>>(), [3..4, 4..5]);
    }
}
