//! The outlet for the bytes of a volume: collects them to pieces.

use bytes::Bytes;

use super::{PIECE_BYTES, Piece};
use crate::buffer::Filling;

/// Fewer zeros than this are bytes like others: padding of a tar.
const FEW_ZEROS: u64 = 16 << 10;

/// Pieces are no longer taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody takes the bytes any more")]
pub struct Gone;

/// Collects bytes to pieces and hands them over, in order.
pub struct Outlet<'s> {
    sink: &'s mut dyn FnMut(Piece) -> Result<(), Gone>,
    /// Most zeros of a piece.
    zeros_at_once: u64,
    filling: Option<Filling>,
    position: u64,
}

impl<'s> Outlet<'s> {
    /// Hands pieces to `sink`, with at most `zeros_at_once` zeros in one.
    pub fn new(sink: &'s mut dyn FnMut(Piece) -> Result<(), Gone>, zeros_at_once: u64) -> Self {
        Self {
            sink,
            zeros_at_once,
            filling: None,
            position: 0,
        }
    }

    /// Bytes so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Room for the next bytes: for one at least, and `most` at most.
    pub fn room(&mut self, most: u64) -> &mut [u8] {
        let filling = self.filling.get_or_insert_with(|| Filling::new(self.position));
        let left = PIECE_BYTES - filling.len().min(PIECE_BYTES);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        filling.room().get_mut(..left.min(most)).unwrap_or_default()
    }

    /// The first `count` bytes of [`Outlet::room`] were read.
    pub fn filled(&mut self, count: usize) -> Result<(), Gone> {
        self.position += count as u64;
        if let Some(filling) = &mut self.filling {
            filling.filled(count as u64);
            if filling.len() >= PIECE_BYTES {
                return self.flush();
            }
        }
        Ok(())
    }

    /// Appends `bytes`.
    pub fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            let room = self.room(bytes.len() as u64);
            let (now, later) = bytes.split_at(room.len());
            room.copy_from_slice(now);
            self.filled(now.len())?;
            bytes = later;
        }
        Ok(())
    }

    /// Appends a piece as it is.
    pub fn piece(&mut self, bytes: Bytes) -> Result<(), Gone> {
        self.flush()?;
        self.position += bytes.len() as u64;
        (self.sink)(Piece::Data(bytes))
    }

    /// Appends `count` zeros.
    pub fn zeros(&mut self, count: u64) -> Result<(), Gone> {
        let mut left = count;
        if count < FEW_ZEROS {
            while left > 0 {
                let room = self.room(left);
                room.fill(0);
                let length = room.len();
                left -= length as u64;
                self.filled(length)?;
            }
            return Ok(());
        }
        self.flush()?;
        while left > 0 {
            let now = left.min(self.zeros_at_once);
            (self.sink)(Piece::Zeros(now))?;
            self.position += now;
            left -= now;
        }
        Ok(())
    }

    /// Hands over what was collected.
    pub fn flush(&mut self) -> Result<(), Gone> {
        match self.filling.take() {
            Some(filling) if !filling.is_empty() => (self.sink)(Piece::Data(filling.freeze())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_full_and_many_zeros_are_counted() {
        let mut pieces = Vec::new();
        let mut sink = |piece| {
            pieces.push(piece);
            Ok(())
        };
        let mut outlet = Outlet::new(&mut sink, 1 << 20);
        outlet.bytes(&vec![7; PIECE_BYTES + 5]).unwrap();
        outlet.zeros(100).unwrap();
        outlet.bytes(b"x").unwrap();
        outlet.zeros((2 << 20) + 1).unwrap();
        outlet.flush().unwrap();
        assert_eq!(
            outlet.position(),
            (PIECE_BYTES + 5 + 100 + 1 + (2 << 20) + 1) as u64
        );
        let lengths: Vec<_> = pieces
            .iter()
            .map(|piece| (matches!(piece, Piece::Zeros(_)), piece.length()))
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
    fn nobody_there_is_an_error_at_once() {
        let mut sink = |_| Err(Gone);
        let mut outlet = Outlet::new(&mut sink, 1 << 20);
        assert_eq!(outlet.zeros(1 << 30), Err(Gone));
        assert_eq!(outlet.bytes(&vec![1; PIECE_BYTES]), Err(Gone));
    }
}
