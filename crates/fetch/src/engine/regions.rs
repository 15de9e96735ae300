//! Objects whose data is known to be zero in parts. These zeros are generated, not requested.

use std::ops::Range;
use std::sync::Arc;

/// Smaller holes are transferred. Skipping a hole needs another request, which costs a round trip;
/// a fast network transfers about this many bytes in that time.
const SMALL_HOLE_BYTES: u64 = 1 << 20;

/// Ranges in which an object contains data. All other bytes are zeros.
#[derive(Debug, Clone)]
pub struct ObjectRegions(Arc<[Range<u64>]>);

/// A piece of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectPiece {
    /// Bytes to request from the server.
    Data(Range<u64>),
    /// A number of zeros, which are not requested.
    Zeros(u64),
}

impl ObjectPiece {
    /// Returns the range of bytes to request; `None` for zeros.
    pub(super) fn data_range(self) -> Option<Range<u64>> {
        match self {
            Self::Data(range) => Some(range),
            Self::Zeros(_) => None,
        }
    }
}

/// Iterator over the pieces of an object, in order.
#[derive(Debug, Clone)]
pub(super) struct ObjectPieces {
    regions: ObjectRegions,
    left: Range<u64>,
    most: u64,
}

impl ObjectPieces {
    /// Splits `range` into pieces with at most `most` bytes of data each. Bytes that are not known
    /// to be zero count as data.
    pub(super) fn new(regions: Option<&ObjectRegions>, range: Range<u64>, most: u64) -> Self {
        let all = || ObjectRegions::new(std::iter::once(0..range.end));
        Self { regions: regions.cloned().unwrap_or_else(all), left: range, most }
    }

    /// Returns the next range of data, of at most `most` bytes. Zeros before it are passed over.
    pub(super) fn next_data(&mut self, most: u64) -> Option<Range<u64>> {
        self.most = most;
        self.find_map(ObjectPiece::data_range)
    }

    /// Returns the bytes that no piece has covered yet.
    pub(super) fn left(&self) -> Range<u64> {
        self.left.clone()
    }
}

impl Iterator for ObjectPieces {
    type Item = ObjectPiece;

    fn next(&mut self) -> Option<ObjectPiece> {
        let piece = self.regions.piece_at(self.left.start, self.left.end, self.most)?;
        self.left.start = match &piece {
            ObjectPiece::Data(range) => range.end,
            ObjectPiece::Zeros(length) => self.left.start + length,
        };
        Some(piece)
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

    /// Returns the piece at `position` of an object of `length` bytes, with at most `most` bytes
    /// of data; `None` at the end of the object.
    fn piece_at(&self, position: u64, length: u64, most: u64) -> Option<ObjectPiece> {
        if position >= length {
            return None;
        }
        let next = self.0.partition_point(|region| region.end <= position);
        Some(match self.0.get(next) {
            Some(region) if region.start <= position => {
                let end = region.end.min(length).min(position.saturating_add(most));
                ObjectPiece::Data(position..end)
            }
            Some(region) => ObjectPiece::Zeros(region.start.min(length) - position),
            None => ObjectPiece::Zeros(length - position),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn an_object_is_divided_into_data_and_zeros() {
        let regions = ObjectRegions::new([MIB..2 * MIB, 2 * MIB + 512..3 * MIB, 9 * MIB..10 * MIB]);
        let mut at = 0;
        let mut pieces = Vec::new();
        while let Some(piece) = regions.piece_at(at, 12 * MIB, 3 * MIB / 2) {
            at = match &piece {
                ObjectPiece::Data(range) => range.end,
                ObjectPiece::Zeros(length) => at + length,
            };
            pieces.push(piece);
        }
        let expected = [
            ObjectPiece::Zeros(MIB),
            ObjectPiece::Data(MIB..5 * MIB / 2),
            ObjectPiece::Data(5 * MIB / 2..3 * MIB),
            ObjectPiece::Zeros(6 * MIB),
            ObjectPiece::Data(9 * MIB..10 * MIB),
            ObjectPiece::Zeros(2 * MIB),
        ];
        assert_eq!(pieces, expected);
        assert_eq!(
            regions.piece_at(9 * MIB + 1, 9 * MIB + 5, MIB),
            Some(ObjectPiece::Data(9 * MIB + 1..9 * MIB + 5))
        );
        assert_eq!(ObjectRegions::new([]).piece_at(3, 5, 1), Some(ObjectPiece::Zeros(2)));
    }
}
