//! The block map: a number for each block of the disk.

use crate::wanted_ranges::LoadedTable;

/// A part of the block map; remembers its first entry.
pub(super) const BLOCK_MAP: u8 = 0;

/// Bytes of an entry of the block map.
pub(super) const ENTRY_BYTES: u64 = 4;

/// Entries from here on are no numbers of blocks: 0xffff_fffe is a block of zeros, 0xffff_ffff one that was never
/// written, which reads as zeros too (`VDICore.h`, `VDI_IMAGE_BLOCK_UNALLOCATED`).
pub(super) const FIRST_UNALLOCATED: u32 = 0xffff_fffe;

/// The numbers of entries of a part of the map, and the block of each; `None` if it is not allocated.
pub(super) fn map_entries(table: LoadedTable<'_>) -> impl Iterator<Item = (u64, Option<u32>)> {
    let entries = table.bytes.as_chunks().0.iter();
    let blocks = entries.map(|entry| u32::from_le_bytes(*entry));
    (table.note..).zip(blocks.map(|block| (block < FIRST_UNALLOCATED).then_some(block)))
}
