//! The block allocation table (2.5).

use super::head::ALIGNMENT;
use super::metadata::VhdxMetadata;
use super::regions::VhdxRegions;
use crate::last_block_end::LastBlockEnd;
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch};
use crate::{Error, Format, HeadFacts};

/// A part of the block allocation table; remembers its first entry.
const BAT: u8 = 0;

pub(super) const ENTRY_BYTES: u64 = 8;

/// Sectors whose presence one sector bitmap block can describe (2.4): their payload blocks are a chunk.
const CHUNK_SECTORS: u64 = 1 << 23;

/// Bits 20 to 63 of an entry: where the block is, in MiB (2.5.1).
const OFFSET_MASK: u64 = !0xf_ffff;
/// Bits 0 to 2 of an entry: the state of the block.
const STATE_MASK: u64 = 7;

/// An image without a parent.
pub(super) struct VhdxLayout {
    pub(super) facts: HeadFacts,
    pub(super) metadata: VhdxMetadata,
    pub(super) regions: VhdxRegions,
    /// Payload blocks of a chunk; after each chunk the table has an entry for its sector bitmap.
    chunk_blocks: u64,
    /// Entries of the table.
    entries: u64,
    pub(super) reach: LastBlockEnd,
}

impl VhdxLayout {
    pub(super) fn new(metadata: VhdxMetadata, regions: VhdxRegions) -> Result<Self, Error> {
        let chunk_blocks = CHUNK_SECTORS * metadata.sector_size / metadata.block_size;
        let entries = match metadata.virtual_size.div_ceil(metadata.block_size) {
            // As many as QEMU's count, which is 32 bits wide, wraps to. It gives an empty disk a table of this size and
            // refuses any other, and so does not take a disk for empty because its size was damaged.
            0 => u64::from(u32::MAX) / chunk_blocks,
            // 2.5: a bitmap's entry between two chunks, none after the last.
            blocks => blocks + (blocks - 1) / chunk_blocks,
        };
        let room = (regions.bat.end - regions.bat.start) / ENTRY_BYTES;
        if room < entries {
            return Err(Format::Vhdx.header_error(format!(
                "its block allocation table has room for {room} entries, the disk needs {entries}"
            )));
        }
        Ok(Self {
            facts: metadata.head_facts(),
            metadata,
            regions,
            chunk_blocks,
            entries,
            reach: LastBlockEnd::default(),
        })
    }

    /// The block of entry `index` of the table, if it is present.
    pub(super) fn payload_block(
        &self,
        index: u64,
        entry: u64,
    ) -> Result<Option<PayloadBlock>, BatEntryError> {
        let (chunk, place) = (index / (self.chunk_blocks + 1), index % (self.chunk_blocks + 1));
        if place == self.chunk_blocks {
            // Only images with a parent have sector bitmaps.
            return Ok(None);
        }
        match entry & STATE_MASK {
            // Not present, undefined, zero, unmapped, and unmapped in the drafts of the format: all read as zeros by QEMU.
            0 | 1 | 2 | 3 | 5 => Ok(None),
            // Fully present.
            6 => {
                let guest = Guest((chunk * self.chunk_blocks + place) * self.metadata.block_size);
                self.present_block(Host(entry & OFFSET_MASK), guest).map(Some)
            }
            7 => Err(BatEntryError::OfItsState(
                "a block is partially present, though the image has no parent".into(),
            )),
            other => Err(BatEntryError::OfItsState(format!("a block has the unknown state {other}"))),
        }
    }

    fn present_block(&self, host: Host, guest: Guest) -> Result<PayloadBlock, BatEntryError> {
        let nowhere = format!("a block cannot be at {host:#x}");
        let end = host.checked_add(self.metadata.block_size);
        let Some(end) = end.filter(|end| i64::try_from(end.0).is_ok()) else {
            return Err(BatEntryError::OfItsPlace(nowhere));
        };
        if host < Host(ALIGNMENT) {
            return Err(BatEntryError::OfItsState(nowhere));
        }
        if let Some(region) = self.regions.find_overlapping(&(host..end)) {
            return Err(BatEntryError::OfItsPlace(format!(
                "the block at {host:#x} overlaps the region at {:#x}",
                region.start
            )));
        }
        let length = self.metadata.block_size.min(guest.remaining_bytes(self.metadata.virtual_size));
        // The last block may be cut where the disk ends: older QEMU wrote it so. QEMU takes the entries of bitmaps for blocks when
        // it looks for the last one, and so wants all of every block where there is such an entry.
        let has_bitmaps = self.entries > self.chunk_blocks;
        Ok(PayloadBlock { host, guest, length, end: if has_bitmaps { end } else { host + length } })
    }

    /// Asks for the block allocation table, in parts.
    pub(super) fn table_parts(&self, parts: &mut RangeBatch) {
        let bytes = if self.metadata.virtual_size == 0 { 0 } else { self.entries * ENTRY_BYTES };
        parts.push_table_parts(self.regions.bat.start, bytes, BAT, ENTRY_BYTES);
    }
}

/// A payload block that is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PayloadBlock {
    pub(super) host: Host,
    pub(super) guest: Guest,
    /// Bytes of it that are the disk's.
    pub(super) length: u64,
    /// The end that the image has to reach.
    pub(super) end: Host,
}

/// A mistake in an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BatEntryError {
    /// QEMU finds it when it opens the image.
    OfItsPlace(String),
    /// QEMU finds it when it reads the block, if at all.
    OfItsState(String),
}

/// The entries of a part of the table, by their numbers.
pub(super) fn bat_entries(part: LoadedTable<'_>) -> impl Iterator<Item = (u64, u64)> {
    let entries = part.bytes.as_chunks().0.iter();
    (part.note..).zip(entries.map(|entry| u64::from_le_bytes(*entry)))
}
