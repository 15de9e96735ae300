//! Collects the bytes of a volume into pieces.

use bytes::Bytes;
use stream::buffer::ChunkBuffer;
use stream::error::Error;
use stream::zeros::ZEROS;

use super::{Encoding, PIECE_BYTES, VolumePiece};

/// Shorter runs of zeros, for example the padding of a tar, are treated like other bytes.
const FEW_ZEROS: usize = 16 << 10;

/// The error of a write after the receiver of the pieces has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the receiver of the data is gone")]
pub struct OutletClosedError;

impl From<OutletClosedError> for Error {
    /// The consumer reports its own error, or was stopped.
    fn from(_: OutletClosedError) -> Self {
        Self::Stopped
    }
}

/// Collects bytes into pieces and passes them on in order.
pub struct PieceOutlet<'s> {
    sink: &'s mut dyn FnMut(VolumePiece) -> Result<(), OutletClosedError>,
    /// Limit on the zeros in one piece.
    zeros_at_once: u64,
    block_bytes: usize,
    filling: Option<ChunkBuffer>,
    position: u64,
}

impl<'s> PieceOutlet<'s> {
    /// Creates an outlet that passes pieces to `sink`, with at most `zeros_at_once` zeros in one
    /// piece.
    pub fn new(
        sink: &'s mut dyn FnMut(VolumePiece) -> Result<(), OutletClosedError>,
        zeros_at_once: u64,
    ) -> Self {
        Self { sink, zeros_at_once, block_bytes: PIECE_BYTES, filling: None, position: 0 }
    }

    /// Creates an outlet for pieces that will be encoded.
    pub(super) fn for_encoding(
        sink: &'s mut dyn FnMut(VolumePiece) -> Result<(), OutletClosedError>,
        encoding: Encoding,
    ) -> Self {
        let block_bytes = encoding.block_bytes();
        Self { block_bytes, ..Self::new(sink, encoding.zeros_at_once()) }
    }

    /// Returns the size of the blocks into which a [`BlockOutlet`](super::blocks::BlockOutlet)
    /// cuts a disk.
    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Returns the number of bytes that were appended so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns room for the next bytes: at least one and at most `most` bytes.
    pub fn spare_capacity(&mut self, most: u64) -> &mut [u8] {
        let filling = self.filling.get_or_insert_with(|| ChunkBuffer::new(self.position));
        let left = PIECE_BYTES - filling.len().min(PIECE_BYTES);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        filling.spare_capacity().get_mut(..left.min(most)).unwrap_or_default()
    }

    /// Marks the first `count` bytes of [`PieceOutlet::spare_capacity`] as filled. Passes the
    /// piece on if it is full.
    pub fn mark_filled(&mut self, count: usize) -> Result<(), OutletClosedError> {
        self.position += count as u64;
        if let Some(filling) = &mut self.filling {
            filling.mark_filled(count as u64);
            if filling.len() >= PIECE_BYTES {
                return self.flush();
            }
        }
        Ok(())
    }

    /// Appends `bytes`.
    pub fn append_bytes(&mut self, mut bytes: &[u8]) -> Result<(), OutletClosedError> {
        while !bytes.is_empty() {
            let room = self.spare_capacity(bytes.len() as u64);
            let (now, later) = bytes.split_at(room.len());
            room.copy_from_slice(now);
            self.mark_filled(now.len())?;
            bytes = later;
        }
        Ok(())
    }

    /// Appends `bytes` as a piece of its own, without copying them.
    pub fn append_piece(&mut self, bytes: Bytes) -> Result<(), OutletClosedError> {
        self.flush()?;
        self.position += bytes.len() as u64;
        (self.sink)(VolumePiece::Data(bytes))
    }

    /// Appends `count` zeros. Longer runs become pieces that only store the number of zeros.
    pub fn append_zeros(&mut self, count: u64) -> Result<(), OutletClosedError> {
        if count < FEW_ZEROS as u64 {
            return self.append_bytes(&ZEROS[..usize::try_from(count).unwrap_or(0)]);
        }
        self.flush()?;
        let mut left = count;
        while left > 0 {
            let now = left.min(self.zeros_at_once);
            (self.sink)(VolumePiece::Zeros(now))?;
            self.position += now;
            left -= now;
        }
        Ok(())
    }

    /// Passes on the bytes that were collected, even if they do not fill a piece.
    pub fn flush(&mut self) -> Result<(), OutletClosedError> {
        match self.filling.take() {
            Some(filling) if !filling.is_empty() => {
                (self.sink)(VolumePiece::Data(filling.freeze()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_filled_and_long_runs_of_zeros_are_counted() {
        let mut pieces = Vec::new();
        let mut sink = |piece| {
            pieces.push(piece);
            Ok(())
        };
        let mut outlet = PieceOutlet::new(&mut sink, 1 << 20);
        outlet.append_bytes(&vec![7; PIECE_BYTES + 5]).unwrap();
        outlet.append_zeros(100).unwrap();
        outlet.append_bytes(b"x").unwrap();
        outlet.append_zeros((2 << 20) + 1).unwrap();
        outlet.flush().unwrap();
        assert_eq!(outlet.position(), (PIECE_BYTES + 5 + 100 + 1 + (2 << 20) + 1) as u64);
        let lengths: Vec<_> = pieces
            .iter()
            .map(|piece| (matches!(piece, VolumePiece::Zeros(_)), piece.volume_bytes()))
            .collect();
        assert_eq!(
            lengths,
            [
                (false, PIECE_BYTES as u64),
                (false, 106),
                (true, 1 << 20),
                (true, 1 << 20),
                (true, 1)
            ]
        );
    }

    #[test]
    fn a_closed_outlet_is_reported_at_once() {
        let mut sink = |_| Err(OutletClosedError);
        let mut outlet = PieceOutlet::new(&mut sink, 1 << 20);
        assert_eq!(outlet.append_zeros(1 << 30), Err(OutletClosedError));
        assert_eq!(outlet.append_bytes(&vec![1; PIECE_BYTES]), Err(OutletClosedError));
    }
}
