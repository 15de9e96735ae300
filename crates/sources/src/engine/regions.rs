//! Objects that are known to be zero in parts: those parts are made here instead of being asked for.

use std::ops::Range;
use std::sync::Arc;

/// Holes below this are transferred: a request of its own for what follows costs a round trip, in which a fast network
/// brings as much.
const SMALL_HOLE_BYTES: u64 = 1 << 20;

/// Ranges in which an object has data. All else reads as zeros.
#[derive(Debug, Clone)]
pub struct Regions(Arc<[Range<u64>]>);

/// A part of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes to be asked for.
    Data(Range<u64>),
    /// A number of zeros.
    Zeros(u64),
}

impl Piece {
    /// The range of bytes to be asked for.
    pub(super) fn data(self) -> Option<Range<u64>> {
        match self {
            Self::Data(range) => Some(range),
            Self::Zeros(_) => None,
        }
    }
}

/// An object, cut up.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    regions: Regions,
    left: Range<u64>,
    most: u64,
}

impl Pieces {
    /// The bytes of `range`, with at most `most` bytes of data in a piece. What is not known to be zero is data.
    pub(super) fn new(regions: Option<&Regions>, range: Range<u64>, most: u64) -> Self {
        let all = || Regions::new(std::iter::once(0..range.end));
        Self {
            regions: regions.cloned().unwrap_or_else(all),
            left: range,
            most,
        }
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let piece = self.regions.piece(self.left.start, self.left.end, self.most)?;
        self.left.start = match &piece {
            Piece::Data(range) => range.end,
            Piece::Zeros(length) => self.left.start + length,
        };
        Some(piece)
    }
}

impl Regions {
    /// From the ranges of data: in order, and none of them empty.
    pub fn new(data: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut regions: Vec<Range<u64>> = Vec::new();
        for range in data {
            match regions.last_mut() {
                Some(last) if range.start.saturating_sub(last.end) < SMALL_HOLE_BYTES => last.end = range.end,
                _ => regions.push(range),
            }
        }
        Self(regions.into())
    }

    /// The piece at `position` of an object of `length` bytes, with at most `most` bytes of data; nothing at its end.
    fn piece(&self, position: u64, length: u64, most: u64) -> Option<Piece> {
        if position >= length {
            return None;
        }
        let next = self.0.partition_point(|region| region.end <= position);
        Some(match self.0.get(next) {
            Some(region) if region.start <= position => {
                let end = region.end.min(length).min(position.saturating_add(most));
                Piece::Data(position..end)
            }
            Some(region) => Piece::Zeros(region.start.min(length) - position),
            None => Piece::Zeros(length - position),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn an_object_is_cut_into_data_and_zeros() {
        let regions = Regions::new([MIB..2 * MIB, 2 * MIB + 512..3 * MIB, 9 * MIB..10 * MIB]);
        let mut at = 0;
        let mut pieces = Vec::new();
        while let Some(piece) = regions.piece(at, 12 * MIB, 3 * MIB / 2) {
            at = match &piece {
                Piece::Data(range) => range.end,
                Piece::Zeros(length) => at + length,
            };
            pieces.push(piece);
        }
        let expected = [
            Piece::Zeros(MIB),
            Piece::Data(MIB..5 * MIB / 2),
            Piece::Data(5 * MIB / 2..3 * MIB),
            Piece::Zeros(6 * MIB),
            Piece::Data(9 * MIB..10 * MIB),
            Piece::Zeros(2 * MIB),
        ];
        assert_eq!(pieces, expected);
        assert_eq!(
            regions.piece(9 * MIB + 1, 9 * MIB + 5, MIB),
            Some(Piece::Data(9 * MIB + 1..9 * MIB + 5))
        );
        assert_eq!(Regions::new([]).piece(3, 5, 1), Some(Piece::Zeros(2)));
    }
}
