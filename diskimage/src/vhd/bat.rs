//! The block allocation table ("Block Allocation Table and Data Blocks"), and the image as the engine sees it.

use super::dynamic::DynamicHeader;
use super::footer::Footer;
use crate::layout::{Access, Layout, Table};
use crate::stream::wants::{Batch, Role};
use crate::{Error, Format};

/// A part of the block allocation table; remembers its first entry.
const BAT: u8 = 0;

/// Bytes of the table that are looked at together: it may be larger than the memory that we spend on one.
const PART_BYTES: usize = 1 << 20;
const ENTRY_BYTES: u64 = 4;

/// Bytes of a block that are asked for together, at most.
const RUN_BYTES: usize = 1 << 30;

/// An entry of a block that is not allocated: it reads as zeros.
const UNALLOCATED: u32 = u32::MAX;

/// Units in which bytes wait when the table comes late: blocks, as far as that is neither too fine nor too coarse.
const PARKING_UNITS: std::ops::RangeInclusive<u64> = 64 << 10..=2 << 20;

/// A dynamic image.
pub(super) struct Vhd {
    virtual_size: u64,
    header: DynamicHeader,
    /// Where the table and the blocks learned of so far end, the unused part of the last one included.
    end: u64,
}

impl Vhd {
    pub(super) fn new(footer: &Footer, header: DynamicHeader) -> Self {
        Self {
            virtual_size: footer.virtual_size,
            header,
            end: (header.table_offset + u64::from(header.table_entries) * ENTRY_BYTES).next_multiple_of(512),
        }
    }

    /// Bytes of the bitmap before each block: a bit a sector, in whole sectors. Which sectors it calls unused only says
    /// what a parent would have there, so it is not read; nor does QEMU.
    fn bitmap_bytes(&self) -> u64 {
        (self.header.block_size / 512 / 8).next_multiple_of(512)
    }

    /// The block of entry `index` of the table, if it is allocated: its first sector is `entry`.
    fn add_block(&mut self, index: u64, entry: u32, batch: &mut Batch) {
        if entry == UNALLOCATED {
            return;
        }
        let block_size = self.header.block_size;
        let host = u64::from(entry) * 512 + self.bitmap_bytes();
        self.end = self.end.max(host + block_size);
        let guest = index * block_size;
        let length = block_size.min(self.virtual_size.saturating_sub(guest));
        for skip in (0..length).step_by(RUN_BYTES) {
            let run = length.min(skip + RUN_BYTES as u64) - skip;
            batch.push(host + skip, run, Role::Data, guest + skip);
        }
    }
}

impl Layout for Vhd {
    fn format(&self) -> Format {
        Format::Vhd
    }

    fn virtual_size(&self) -> u64 {
        self.virtual_size
    }

    fn cluster_size(&self) -> Option<u64> {
        Some(self.header.block_size)
    }

    fn features(&self) -> Vec<String> {
        vec!["dynamic".into()]
    }

    fn parking_unit(&self) -> Option<u64> {
        Some(
            self.header
                .block_size
                .clamp(*PARKING_UNITS.start(), *PARKING_UNITS.end()),
        )
    }

    fn begin(&mut self, _access: Access) -> Result<Batch, Error> {
        let mut first = Batch::default();
        let bytes = u64::from(self.header.table_entries) * ENTRY_BYTES;
        for skip in (0..bytes).step_by(PART_BYTES) {
            let length = bytes.min(skip + PART_BYTES as u64) - skip;
            let table = Role::Table(BAT);
            first.push(self.header.table_offset + skip, length, table, skip / ENTRY_BYTES);
        }
        Ok(first)
    }

    fn learn(&mut self, table: Table, bytes: &[u8]) -> Result<Batch, Error> {
        let mut batch = Batch::default();
        for (index, entry) in (table.at..).zip(bytes.as_chunks().0) {
            self.add_block(index, u32::from_be_bytes(*entry), &mut batch);
        }
        Ok(batch)
    }

    fn table_name(&self, _kind: u8) -> &'static str {
        "the block allocation table"
    }

    /// Also blocks beyond the end of the disk and the unused part of its last one must be there, as QEMU wants it.
    fn least_length(&self) -> u64 {
        self.end
    }
}
