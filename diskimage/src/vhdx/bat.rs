//! The block allocation table (2.5), and the image as the engine sees it.

use super::check::VhdxCheck;
use super::metadata::Metadata;
use super::regions::Regions;
use super::{ALIGNMENT, wrong};
use crate::check::Check;
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

    /// What entry `index` of the table says.
    pub(super) fn block(&self, index: u64, entry: u64) -> Result<Option<Block>, Fault> {
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
                let guest = (chunk * self.chunk_blocks + place) * self.metadata.block_size;
                self.present(entry & OFFSET_MASK, guest).map(Some)
            }
            7 => Err(Fault::OfItsState(
                "a block is partially present, though the image has no parent".into(),
            )),
            other => Err(Fault::OfItsState(format!(
                "a block has the unknown state {other}"
            ))),
        }
    }

    fn present(&self, host: u64, guest: u64) -> Result<Block, Fault> {
        let nowhere = format!("a block cannot be at {host:#x}");
        let end = host.checked_add(self.metadata.block_size);
        let Some(end) = end.filter(|end| i64::try_from(*end).is_ok()) else {
            return Err(Fault::OfItsPlace(nowhere));
        };
        if host < ALIGNMENT {
            return Err(Fault::OfItsState(nowhere));
        }
        if let Some(region) = self.regions.overlapping(&(host..end)) {
            return Err(Fault::OfItsPlace(format!(
                "the block at {host:#x} overlaps the region at {:#x}",
                region.start
            )));
        }
        let left = self.metadata.virtual_size.saturating_sub(guest);
        let length = self.metadata.block_size.min(left);
        // The last block may be cut where the disk ends: older QEMU wrote it so. QEMU takes the entries of bitmaps for blocks when
        // it looks for the last one, and so wants all of every block where there is such an entry.
        let has_bitmaps = self.entries > self.chunk_blocks;
        Ok(Block {
            host,
            guest,
            length,
            end: if has_bitmaps { end } else { host + length },
        })
    }

    /// Asks for the block allocation table, in parts.
    pub(super) fn table_parts(&self, parts: &mut Batch) {
        let bytes = if self.metadata.virtual_size == 0 {
            0
        } else {
            self.entries * ENTRY_BYTES
        };
        for skip in (0..bytes).step_by(PART_BYTES) {
            let length = bytes.min(skip + PART_BYTES as u64) - skip;
            let host = self.regions.bat.start + skip;
            parts.push(host, length, Role::Table(BAT), skip / ENTRY_BYTES);
        }
    }
}

/// A payload block that is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) host: u64,
    pub(super) guest: u64,
    /// Bytes of it that are the disk's.
    pub(super) length: u64,
    /// How far the image has to reach.
    pub(super) end: u64,
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// QEMU finds it when it opens the image.
    OfItsPlace(String),
    /// QEMU finds it when it reads the block, if at all.
    OfItsState(String),
}

/// The entries of a part of the table that begins with entry `first`.
pub(super) fn entries(first: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let entries = bytes.as_chunks().0.iter();
    (first..).zip(entries.map(|entry| u64::from_le_bytes(*entry)))
}

impl Layout for Vhdx {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn Check> {
        Box::new(VhdxCheck::new(*self, image_length))
    }

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
        self.table_parts(&mut first);
        Ok(first)
    }

    fn learn(&mut self, table: Table, bytes: &[u8], batch: &mut Batch) -> Result<(), Error> {
        for (index, entry) in entries(table.at, bytes) {
            let block = self.block(index, entry).map_err(|fault| {
                let (Fault::OfItsPlace(what) | Fault::OfItsState(what)) = fault;
                Error::Corrupt {
                    format: Format::Vhdx,
                    what,
                    offset: self.regions.bat.start + index * ENTRY_BYTES,
                }
            })?;
            if let Some(block) = block {
                self.reach.extend(block.end);
                batch.push(block.host, block.length, Role::Data, block.guest);
            }
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
