//! The block allocation table (\[MS-VHDX\] 2.5).

use super::head::ALIGNMENT;
use super::metadata::VhdxMetadata;
use super::regions::VhdxRegions;
use crate::last_block_end::LastBlockEnd;
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch};
use crate::{Error, Format, HeadFacts};

/// Table kind: a part of the BAT. `LoadedTable::note` is the index of the part's first entry.
const BAT: u8 = 0;

pub(super) const ENTRY_BYTES: u64 = 8;

/// Sectors that one sector bitmap block describes (2.4). The payload blocks with these sectors
/// form a chunk.
const CHUNK_SECTORS: u64 = 1 << 23;

/// Bits 20 to 63 of an entry: the offset of the block in MiB (2.5.1).
const OFFSET_MASK: u64 = !0xf_ffff;
/// Bits 0 to 2 of an entry: the state of the block.
const STATE_MASK: u64 = 7;

/// A VHDX image without a parent.
pub(super) struct VhdxLayout {
    pub(super) facts: HeadFacts,
    metadata: VhdxMetadata,
    pub(super) regions: VhdxRegions,
    /// Number of payload blocks in a chunk. After each chunk, the table contains an entry for the
    /// sector bitmap of the chunk.
    chunk_blocks: u64,
    /// Number of entries in the table.
    entries: u64,
    pub(super) reach: LastBlockEnd,
}

impl VhdxLayout {
    pub(super) fn new(metadata: VhdxMetadata, regions: VhdxRegions) -> Result<Self, Error> {
        let chunk_blocks = CHUNK_SECTORS * metadata.sector_size / metadata.block_size;
        let entries = match metadata.virtual_size.div_ceil(metadata.block_size) {
            // In QEMU the number of entries is 32 bits wide, and wraps to this value for an empty
            // disk. QEMU writes a table of this size for an empty disk and refuses a smaller one.
            // A disk whose size was damaged is therefore not mistaken for an empty disk.
            0 => u64::from(u32::MAX) / chunk_blocks,
            // There is a sector bitmap entry between two chunks, but none after the last chunk
            // (2.5).
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

    /// Returns the block of entry `index` of the table, or `None` if it is not present.
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
            // QEMU reads blocks in all of these states as zeros: not present, undefined, zero,
            // unmapped, and unmapped as in drafts of the format.
            0 | 1 | 2 | 3 | 5 => Ok(None),
            // Fully present.
            6 => {
                let guest = Guest((chunk * self.chunk_blocks + place) * self.metadata.block_size);
                self.present_block(Host(entry & OFFSET_MASK), guest).map(Some)
            }
            7 => Err(BatEntryError::OfItsState(
                "a block is partially present, though the image has no parent".into(),
            )),
            other => {
                Err(BatEntryError::OfItsState(format!("a block has the unknown state {other}")))
            }
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
        let length =
            self.metadata.block_size.min(guest.remaining_bytes(self.metadata.virtual_size));
        // The last block may end where the disk ends, because older versions of QEMU wrote it in
        // this way. When QEMU looks for the last block, it mistakes bitmap entries for blocks. If
        // the table contains such entries, QEMU therefore requires that every block is complete.
        let has_bitmaps = self.entries > self.chunk_blocks;
        Ok(PayloadBlock { host, guest, length, end: if has_bitmaps { end } else { host + length } })
    }

    /// Requests the block allocation table, in parts.
    pub(super) fn table_parts(&self, parts: &mut RangeBatch) {
        let bytes = if self.metadata.virtual_size == 0 { 0 } else { self.entries * ENTRY_BYTES };
        parts.push_table_parts(self.regions.bat.start, bytes, BAT, ENTRY_BYTES);
    }
}

/// A payload block that is present in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PayloadBlock {
    pub(super) host: Host,
    pub(super) guest: Guest,
    /// Bytes of the block that belong to the disk.
    pub(super) length: u64,
    /// The offset that the end of the image must reach or exceed.
    pub(super) end: Host,
}

/// An error in an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BatEntryError {
    /// The block extends beyond the largest supported offset, or overlaps a region. QEMU reports
    /// this when it opens the image.
    OfItsPlace(String),
    /// The block has an invalid state, or lies in the first MiB. QEMU reports this when it reads
    /// the block, if at all.
    OfItsState(String),
}

/// Returns the entries of a part of the table, each with its index.
pub(super) fn bat_entries(part: LoadedTable<'_>) -> impl Iterator<Item = (u64, u64)> {
    let entries = part.bytes.as_chunks().0.iter();
    (part.note..).zip(entries.map(|entry| u64::from_le_bytes(*entry)))
}
