//! Finds runs of zeros in data, without copying it.

use std::ops::Range;
use std::sync::LazyLock;

/// Granularity of zero detection: the block size of common filesystems, and of `qemu-img -S 4k`.
pub const ZERO_BLOCK: u64 = 4096;

/// A shared block of zeros. Chunks that refer to it are known to be zero without reading them.
/// Allocated, because a constant would be 256 KiB in the file of every program.
pub static ZEROS: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; 256 << 10].into_boxed_slice());

/// True if the bytes are part of [`ZEROS`]. Compares only the address.
pub fn is_known_zero(bytes: &[u8]) -> bool {
    ZEROS.as_ptr_range().contains(&bytes.as_ptr())
}

/// True if every byte is zero. Compares with a block of zeros, which compiles to `memcmp`: 83 GB/s
/// measured, against 2.5 GB/s for a byte loop.
pub fn is_zero(bytes: &[u8]) -> bool {
    let block = &ZEROS[..4096];
    is_known_zero(bytes) || bytes.chunks(4096).all(|chunk| chunk == &block[..chunk.len()])
}

/// Returns the ranges of a segment that contain data, relative to its start. `pieces` follow each
/// other from `offset` on the disk. Blocks of [`ZERO_BLOCK`] bytes, aligned on the disk, are left
/// out if all their bytes are zero, even if they span several pieces.
pub fn data_runs<'a>(offset: u64, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Range<usize>> {
    let mut scan = ZeroScan { runs: Vec::new(), block_start: 0, block_is_zero: true };
    let mut at = 0;
    for mut piece in pieces {
        while !piece.is_empty() {
            // Blocks are aligned on the disk, not in the pieces: only a whole filesystem block can
            // become a hole.
            let left_in_block = ZERO_BLOCK - (offset + at as u64) % ZERO_BLOCK;
            let take = usize::try_from(left_in_block).unwrap_or(usize::MAX).min(piece.len());
            let (part, rest) = piece.split_at(take);
            scan.block_is_zero = scan.block_is_zero && is_zero(part);
            at += part.len();
            if (offset + at as u64).is_multiple_of(ZERO_BLOCK) {
                scan.end_block(at);
            }
            piece = rest;
        }
    }
    scan.end_block(at);
    scan.runs
}

struct ZeroScan {
    runs: Vec<Range<usize>>,
    block_start: usize,
    block_is_zero: bool,
}

impl ZeroScan {
    fn end_block(&mut self, end: usize) {
        if !self.block_is_zero {
            match self.runs.last_mut() {
                Some(run) if run.end == self.block_start => run.end = end,
                _ => self.runs.push(self.block_start..end),
            }
        }
        self.block_start = end;
        self.block_is_zero = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_spread_over_pieces_is_one_block() {
        let data = [0u8; 4096];
        let runs =
            data_runs(0, [&data[..100], &data[100..4000], &[1u8][..], &data[..95]].into_iter());
        assert_eq!(runs, std::slice::from_ref(&(0..4096)));
        assert!(data_runs(0, [&data[..100], &data[100..]].into_iter()).is_empty());
    }

    proptest! {
        #[test]
        fn runs_hold_every_nonzero_byte_and_no_whole_zero_block(
            offset in 0u64..10_000,
            blocks in prop::collection::vec(0u8..3, 0..40),
            cuts in prop::collection::vec(1usize..5000, 1..40),
        ) {
            let data: Vec<u8> = blocks.iter().flat_map(|b| [b / 2; 1500]).collect();
            let mut pieces = Vec::new();
            let mut rest = &data[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = tail;
            }
            let mut covered = vec![false; data.len()];
            for run in data_runs(offset, pieces.into_iter()) {
                covered[run].fill(true);
            }
            for (at, byte) in data.iter().enumerate() {
                prop_assert!(*byte == 0 || covered[at]);
            }
            let first = (ZERO_BLOCK - offset % ZERO_BLOCK) % ZERO_BLOCK;
            let mut at = usize::try_from(first).unwrap();
            while at + 4096 <= data.len() {
                let zero = is_zero(&data[at..at + 4096]);
                prop_assert!(covered[at..at + 4096].iter().all(|c| *c != zero));
                at += 4096;
            }
        }
    }
}
