//! Cuts a disk into blocks at fixed offsets, so that equal disks give equal pieces.

use stream::buffer::ChunkBuffer;
use stream::zeros::{ZEROS, is_known_zero, is_zero};

use super::outlet::{OutletClosedError, PieceOutlet};

/// Passes a disk on in whole blocks. A block of zeros becomes a part of a run of zeros; in other
/// blocks zeros are data.
pub struct BlockOutlet<'o, 's> {
    outlet: &'o mut PieceOutlet<'s>,
    block_bytes: usize,
    /// Size of the disk. Bytes beyond it are dropped.
    pub limit: u64,
    /// Bytes of the disk that were appended.
    position: u64,
    /// The block at the position, once it holds data.
    filling: Option<ChunkBuffer>,
    /// Zeros at the beginning of the block at the position, before it holds data. They are only
    /// counted, because copying the zeros of holes took a minute for 1 TiB.
    leading_zeros: usize,
    /// Bytes of the whole blocks of zeros before the block at the position.
    zeros: u64,
}

impl<'o, 's> BlockOutlet<'o, 's> {
    /// Creates an outlet whose blocks have the size that the encoding of `outlet` needs.
    pub fn new(outlet: &'o mut PieceOutlet<'s>) -> Self {
        Self {
            block_bytes: outlet.block_bytes(),
            outlet,
            limit: u64::MAX,
            position: 0,
            filling: None,
            leading_zeros: 0,
            zeros: 0,
        }
    }

    /// Returns the number of bytes that were appended.
    pub fn position(&self) -> u64 {
        self.position
    }

    fn filled_bytes(&self) -> usize {
        self.filling.as_ref().map_or(self.leading_zeros, ChunkBuffer::len)
    }

    /// Appends the next bytes of the disk.
    pub fn append_data(&mut self, bytes: &[u8]) -> Result<(), OutletClosedError> {
        if is_known_zero(bytes) {
            return self.append_zeros(bytes.len() as u64);
        }
        let room = usize::try_from(self.limit.saturating_sub(self.position)).unwrap_or(usize::MAX);
        self.copy_bytes(&bytes[..bytes.len().min(room)])
    }

    fn copy_bytes(&mut self, mut bytes: &[u8]) -> Result<(), OutletClosedError> {
        while !bytes.is_empty() {
            let room = self.block_bytes - self.filled_bytes();
            let (mut now, later) = bytes.split_at(room.min(bytes.len()));
            self.position += now.len() as u64;
            let filling = self.filling.get_or_insert_with(|| {
                let mut block = ChunkBuffer::new(0);
                block.fill_from(&mut &ZEROS[..std::mem::take(&mut self.leading_zeros)]);
                block
            });
            filling.fill_from(&mut now);
            if self.filled_bytes() == self.block_bytes {
                self.end_block()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Appends `count` zeros.
    pub fn append_zeros(&mut self, count: u64) -> Result<(), OutletClosedError> {
        let mut left = count.min(self.limit.saturating_sub(self.position));
        if self.filling.is_some() {
            let room = self.block_bytes - self.filled_bytes();
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(room);
            self.copy_bytes(&ZEROS[..now])?;
            left -= now as u64;
        }
        if self.filling.is_none() {
            self.position += left;
            let waiting = left + self.leading_zeros as u64;
            let rest = waiting % self.block_bytes as u64;
            self.zeros += waiting - rest;
            self.leading_zeros = usize::try_from(rest).unwrap_or(0);
        }
        Ok(())
    }

    /// Passes on the block that is being filled, unless it extends the run of zeros.
    fn end_block(&mut self) -> Result<(), OutletClosedError> {
        let Some(block) = self.filling.take() else {
            return Ok(());
        };
        if is_zero(block.as_bytes()) {
            self.zeros += block.len() as u64;
            return Ok(());
        }
        self.outlet.append_zeros(std::mem::take(&mut self.zeros))?;
        self.outlet.append_piece(block.freeze())
    }

    /// Passes on everything that was appended. The last block may be short.
    pub fn finish(mut self) -> Result<(), OutletClosedError> {
        self.end_block()?;
        self.outlet.append_zeros(self.zeros + self.leading_zeros as u64)?;
        self.outlet.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::encode::{PIECE_BYTES, VolumePiece};

    /// Returns the pieces of a disk that is appended in `parts`; `true` appends zeros as a hole.
    fn pieces_of(disk: &[u8], cuts: &[(usize, bool)]) -> Vec<(bool, Vec<u8>)> {
        let mut pieces = Vec::new();
        let mut sink = |piece| {
            pieces.push(match piece {
                VolumePiece::Data(bytes) => (false, bytes.to_vec()),
                VolumePiece::Zeros(count) => (true, vec![0; usize::try_from(count).unwrap()]),
            });
            Ok(())
        };
        let mut outlet = PieceOutlet::new(&mut sink, 1 << 20);
        let mut blocks = BlockOutlet::new(&mut outlet);
        let mut rest = disk;
        for (cut, is_hole) in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            if *is_hole && is_zero(now) {
                blocks.append_zeros(now.len() as u64).unwrap();
            } else {
                blocks.append_data(now).unwrap();
            }
            rest = later;
        }
        assert_eq!(blocks.position(), disk.len() as u64);
        blocks.finish().unwrap();
        pieces
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pieces_depend_on_the_disk_alone(
            runs in prop::collection::vec((any::<bool>(), 1usize..900_000), 1..8),
            cuts in prop::collection::vec((1usize..700_000, any::<bool>()), 1..8),
        ) {
            let disk: Vec<u8> = runs
                .iter()
                .flat_map(|(is_zero, length)| std::iter::repeat_n(u8::from(!is_zero), *length))
                .collect();
            let pieces = pieces_of(&disk, &cuts);
            prop_assert!(pieces == pieces_of(&disk, &[(disk.len(), false)]));
            let joined: Vec<u8> = pieces.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            prop_assert!(joined == disk);
            let is_whole = |(_, bytes): &(bool, Vec<u8>)| bytes.len() == PIECE_BYTES;
            let data: Vec<_> = pieces.iter().filter(|(is_hole, _)| !is_hole).collect();
            prop_assert!(data.iter().rev().skip(1).all(|piece| is_whole(piece)));
        }
    }

    #[test]
    fn bytes_beyond_the_limit_are_dropped() {
        let mut length = 0;
        let mut sink = |piece: VolumePiece| {
            length += piece.volume_bytes();
            Ok(())
        };
        let mut outlet = PieceOutlet::new(&mut sink, 1 << 20);
        let mut blocks = BlockOutlet::new(&mut outlet);
        blocks.limit = 1000;
        blocks.append_data(&[1; 999]).unwrap();
        blocks.append_zeros(0).unwrap();
        blocks.append_data(&[1; 5]).unwrap();
        blocks.append_zeros(1 << 40).unwrap();
        blocks.finish().unwrap();
        assert_eq!(length, 1000);
    }
}
