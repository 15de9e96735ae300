//! The block map: a number for each block of the disk.

use super::header::{BLOCK_BYTES, Header};
use crate::bytes_at::le32;
use crate::wants::{Batch, Table};

/// A part of the block map; remembers the first guest byte that it maps.
pub(super) const BLOCK_MAP: u8 = 0;

/// Bytes of the block map that are one table: they are learned at once. They map 256 GiB of disk.
const TABLE_BYTES: u64 = 1 << 20;

/// Bytes of an entry of the block map.
pub(super) const ENTRY_BYTES: u64 = 4;

/// Entries from here on are no numbers of blocks: 0xffff_fffe is a block of zeros, 0xffff_ffff one that was never
/// written, which reads as zeros too (`VDICore.h`, `VDI_IMAGE_BLOCK_UNALLOCATED`).
pub(super) const FIRST_UNALLOCATED: u32 = 0xffff_fffe;

/// Asks for the first `bytes` of the block map, in parts.
pub(super) fn map_parts(header: &Header, bytes: u64, tables: &mut Batch) {
    let mut at = 0;
    while at < bytes {
        let length = TABLE_BYTES.min(bytes - at);
        let guest = at / ENTRY_BYTES * BLOCK_BYTES;
        tables.push_table(header.map_offset + at, length, BLOCK_MAP, guest);
        at += length;
    }
}

/// The numbers of entries of a part of the map, and the block of each; `None` if it is not allocated.
pub(super) fn entries(table: Table, bytes: &[u8]) -> impl Iterator<Item = (u64, Option<u32>)> {
    let first = table.note / BLOCK_BYTES;
    let blocks = (0..bytes.len() / 4).filter_map(|index| le32(bytes, index * 4));
    (first..).zip(blocks.map(|block| (block < FIRST_UNALLOCATED).then_some(block)))
}
