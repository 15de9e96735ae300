//! Writes the fields of a header block.

use super::super::header::{BLOCK_BYTES, Block, SPARSE_ENTRY_BYTES};
use super::super::number;
use super::entry::{DataRegion, EntryAttributes, NAME_BYTES};

/// A header under construction. Offsets are from POSIX.1-1988 (ustar); from 345 on they are from
/// the old GNU format.
pub(super) struct TarHeaderBuilder(Block);

impl TarHeaderBuilder {
    pub(super) fn new(name: &[u8], typeflag: u8, meta: &EntryAttributes, size: u64) -> Self {
        let mut block = [0; BLOCK_BYTES];
        let length = name.len().min(NAME_BYTES);
        block[..length].copy_from_slice(&name[..length]);
        number::write_field(&mut block[100..108], meta.mode.into());
        number::write_field(&mut block[108..116], meta.uid.into());
        number::write_field(&mut block[116..124], meta.gid.into());
        number::write_field(&mut block[124..136], size.into());
        number::write_field(&mut block[136..148], meta.mtime.into());
        block[156] = typeflag;
        block[257..265].copy_from_slice(b"ustar  \0");
        Self(block)
    }

    pub(super) fn set_link_target(&mut self, target: &[u8]) {
        let length = target.len().min(NAME_BYTES);
        self.0[157..157 + length].copy_from_slice(&target[..length]);
    }

    pub(super) fn set_device(&mut self, major: u32, minor: u32) {
        number::write_field(&mut self.0[329..337], major.into());
        number::write_field(&mut self.0[337..345], minor.into());
    }

    pub(super) fn set_sparse_map(&mut self, size: u64, regions: &[DataRegion], is_continued: bool) {
        write_regions(&mut self.0[386..482], regions);
        self.0[482] = is_continued.into();
        number::write_field(&mut self.0[483..495], size.into());
    }

    /// Returns the block with its checksum: six digits, NUL, space. The checksum is calculated as
    /// if its field held spaces.
    pub(super) fn into_block(mut self) -> Block {
        self.0[148..156].fill(b' ');
        let sum: i128 = self.0.iter().map(|byte| i128::from(*byte)).sum();
        number::write_field(&mut self.0[148..155], sum);
        self.0
    }
}

/// Returns a block that continues a sparse map.
pub(super) fn continuation_block(regions: &[DataRegion], is_continued: bool) -> Block {
    let mut block = [0; BLOCK_BYTES];
    write_regions(&mut block[..504], regions);
    block[504] = is_continued.into();
    block
}

fn write_regions(bytes: &mut [u8], regions: &[DataRegion]) {
    for (entry, region) in bytes.chunks_exact_mut(SPARSE_ENTRY_BYTES).zip(regions) {
        let (offset, length) = entry.split_at_mut(SPARSE_ENTRY_BYTES / 2);
        number::write_field(offset, region.offset.into());
        number::write_field(length, region.length.into());
    }
}
