//! The block allocation table (2.5), and the image as the engine sees it.

use super::metadata::Metadata;
use super::regions::Regions;
use super::{ALIGNMENT, wrong};
use crate::layout::{Access, Layout};
use crate::reach::Reach;
use crate::wants::{Batch, Role, Table};
use crate::{Error, Format};

/// A part of the block allocation table; remembers its first entry.
const BAT: u8 = 0;

/// Bytes of the table that are looked at together: it may be larger than the memory that we spend on one.
const PART_BYTES: usize = 1 << 20;
const ENTRY_BYTES: u64 = 8;

/// Sectors whose presence one sector bitmap block can describe (2.4): so many payload blocks make a chunk.
const CHUNK_SECTORS: u64 = 1 << 23;

/// Bits 20 to 63 of an entry: where the block is, in MiB (2.5.1).
const OFFSET_MASK: u64 = !0xf_ffff;
/// Bits 0 to 2 of an entry: the state of the block.
const STATE_MASK: u64 = 7;

/// An image without a parent.
pub(super) struct Vhdx {
    metadata: Metadata,
    regions: Regions,
    /// Payload blocks of a chunk; after each chunk the table has an entry for its sector bitmap.
    chunk_blocks: u64,
    /// Entries of the table.
    entries: u64,
    reach: Reach,
}

impl Vhdx {
    pub(super) fn new(metadata: Metadata, regions: Regions) -> Result<Self, Error> {
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
            return Err(wrong(format!(
                "its block allocation table has room for {room} entries, the disk needs {entries}"
            )));
        }
        Ok(Self {
            metadata,
            regions,
            chunk_blocks,
            entries,
            reach: Reach::default(),
        })
    }

    /// What entry `index` of the table says, which lies at `at`.
    fn add_entry(&mut self, index: u64, entry: u64, at: u64, batch: &mut Batch) -> Result<(), Error> {
        let (chunk, place) = (index / (self.chunk_blocks + 1), index % (self.chunk_blocks + 1));
        if place == self.chunk_blocks {
            // Only images with a parent have sector bitmaps.
            return Ok(());
        }
        let corrupt = |what: String| Error::Corrupt {
            format: Format::Vhdx,
            what,
            offset: at,
        };
        match entry & STATE_MASK {
            // Not present, undefined, zero, unmapped, and unmapped in the drafts of the format: all read as zeros by QEMU.
            0 | 1 | 2 | 3 | 5 => Ok(()),
            // Fully present.
            6 => {
                let guest = (chunk * self.chunk_blocks + place) * self.metadata.block_size;
                self.add_block(entry & OFFSET_MASK, guest, batch).map_err(corrupt)
            }
            7 => Err(corrupt(
                "a block is partially present, though the image has no parent".into(),
            )),
            other => Err(corrupt(format!("a block has the unknown state {other}"))),
        }
    }

    fn add_block(&mut self, host: u64, guest: u64, batch: &mut Batch) -> Result<(), String> {
        let end = host.checked_add(self.metadata.block_size);
        let Some(end) = end.filter(|_| host >= ALIGNMENT) else {
            return Err(format!("a block cannot be at {host:#x}"));
        };
        if let Some(region) = self.regions.overlapping(&(host..end)) {
            return Err(format!(
                "the block at {host:#x} overlaps the region at {:#x}",
                region.start
            ));
        }
        self.reach.extend(end);
        let left = self.metadata.virtual_size.saturating_sub(guest);
        batch.push(host, self.metadata.block_size.min(left), Role::Data, guest);
        Ok(())
    }
}

impl Layout for Vhdx {
    fn format(&self) -> Format {
        Format::Vhdx
    }

    fn virtual_size(&self) -> u64 {
        self.metadata.virtual_size
    }

    fn cluster_size(&self) -> Option<u64> {
        Some(self.metadata.block_size)
    }

    fn features(&self) -> Vec<String> {
        let kind = if self.metadata.is_fixed {
            "fixed"
        } else {
            "dynamic"
        };
        let mut features = vec![kind.into()];
        if self.metadata.sector_size != 512 {
            features.push(format!("{}-byte sectors", self.metadata.sector_size));
        }
        features
    }

    /// Blocks begin at multiples of it.
    fn parking_unit(&self) -> Option<u64> {
        Some(ALIGNMENT)
    }

    fn begin(&mut self, access: Access) -> Result<Batch, Error> {
        self.reach.begin(access);
        let mut first = Batch::default();
        let bytes = if self.metadata.virtual_size == 0 {
            0
        } else {
            self.entries * ENTRY_BYTES
        };
        for skip in (0..bytes).step_by(PART_BYTES) {
            let length = bytes.min(skip + PART_BYTES as u64) - skip;
            first.push(
                self.regions.bat.start + skip,
                length,
                Role::Table(BAT),
                skip / ENTRY_BYTES,
            );
        }
        Ok(first)
    }

    fn learn(&mut self, table: Table, bytes: &[u8], batch: &mut Batch) -> Result<(), Error> {
        for (entry, index) in bytes.as_chunks().0.iter().zip(table.at..) {
            let at = self.regions.bat.start + index * ENTRY_BYTES;
            self.add_entry(index, u64::from_le_bytes(*entry), at, batch)?;
        }
        self.reach.check()
    }

    fn table_name(&self, _kind: u8) -> &'static str {
        "the block allocation table"
    }

    fn finish(&mut self, end: u64) -> Result<(), Error> {
        self.reach.finish(end)
    }
}
