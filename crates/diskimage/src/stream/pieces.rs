//! Bytes collected from a stream whose chunks may have any size.

use bytes::{Bytes, BytesMut};

/// Smaller pieces are copied together. Otherwise a peer that sends single bytes would cost a
/// handle of 32 bytes for each of them.
const SMALL_BYTES: usize = 4096;

/// Consecutive pieces of a byte sequence. Large pieces are kept without a copy.
#[derive(Debug, Default, Clone)]
pub(super) struct PieceList {
    large: Vec<Bytes>,
    small: BytesMut,
}

impl PieceList {
    /// Adds bytes at the end.
    pub(super) fn push(&mut self, piece: &Bytes) {
        if piece.len() < SMALL_BYTES {
            self.small.extend_from_slice(piece);
            return;
        }
        self.seal_small();
        self.large.push(piece.clone());
    }

    fn seal_small(&mut self) {
        if !self.small.is_empty() {
            self.large.push(self.small.split().freeze());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.large.is_empty() && self.small.is_empty()
    }

    /// Returns the pieces in order.
    pub(super) fn into_list(mut self) -> Vec<Bytes> {
        self.seal_small();
        self.large
    }

    /// Returns all bytes in one buffer, without a copy if there is only one piece.
    pub(super) fn join_pieces(self) -> Bytes {
        let mut pieces = self.into_list();
        if pieces.len() == 1 {
            return pieces.remove(0);
        }
        let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
        pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
        joined.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_small_pieces_are_joined() {
        let mut pieces = PieceList::default();
        for byte in 0..=255u8 {
            pieces.push(&Bytes::copy_from_slice(&[byte]));
        }
        pieces.push(&Bytes::from(vec![7; SMALL_BYTES]));
        pieces.push(&Bytes::from_static(b"end"));
        let list = pieces.into_list();
        assert_eq!(list.iter().map(Bytes::len).collect::<Vec<_>>(), [256, SMALL_BYTES, 3]);
    }

    #[test]
    fn one_large_piece_is_not_copied() {
        let large = Bytes::from(vec![7; SMALL_BYTES]);
        let mut pieces = PieceList::default();
        pieces.push(&large);
        assert_eq!(pieces.join_pieces().as_ptr(), large.as_ptr());
    }
}
