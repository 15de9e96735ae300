//! The block map, which has an entry for each block of the disk.

use crate::wanted_ranges::LoadedTable;

/// Table kind: a part of the block map. `LoadedTable::note` is the index of its first entry.
pub(super) const BLOCK_MAP: u8 = 0;

/// Size of a block map entry in bytes.
pub(super) const ENTRY_BYTES: u64 = 4;

/// Entries from this value on are not block numbers. 0xffff_fffe is a block of zeros. 0xffff_ffff
/// is a block that was never written and reads as zeros too (`VDICore.h`,
/// `VDI_IMAGE_BLOCK_UNALLOCATED`).
pub(super) const FIRST_UNALLOCATED: u32 = 0xffff_fffe;

/// Returns the index of each entry in a part of the map, and its block, or `None` if no block is
/// allocated.
pub(super) fn map_entries(table: LoadedTable<'_>) -> impl Iterator<Item = (u64, Option<u32>)> {
    let entries = table.bytes.as_chunks().0.iter();
    let blocks = entries.map(|entry| u32::from_le_bytes(*entry));
    (table.note..).zip(blocks.map(|block| (block < FIRST_UNALLOCATED).then_some(block)))
}
