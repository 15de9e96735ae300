//! The block allocation table ("Block Allocation Table and Data Blocks"), and the layout interface
//! for the VHD format.

use super::dynamic::DynamicHeader;
use super::footer::VhdFooter;
use crate::check::mapped::MappedCheck;
use crate::last_block_end::LastBlockEnd;
use crate::layout::{AccessOrder, ImageCheck, ImageLayout};
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole};
use crate::{Error, Format, HeadFacts};

/// Table kind: a part of the BAT. `LoadedTable::note` is the index of the part's first entry.
const BAT: u8 = 0;

const ENTRY_BYTES: u64 = 4;

/// Largest part of a block that is requested as one range.
const RUN_BYTES: usize = 1 << 30;

/// Entry of a block that is not allocated. The block reads as zeros.
const UNALLOCATED: u32 = u32::MAX;

/// Limits of the parking unit, which is used if the table comes after the blocks. The unit is the
/// block size, unless that is too small or too large.
const PARKING_UNITS: std::ops::RangeInclusive<u64> = 64 << 10..=2 << 20;

/// A dynamic image.
pub(super) struct VhdLayout {
    facts: HeadFacts,
    header: DynamicHeader,
    reach: LastBlockEnd,
}

impl VhdLayout {
    pub(super) fn new(footer: &VhdFooter, header: DynamicHeader) -> Self {
        let mut reach = LastBlockEnd::default();
        // The table takes up whole sectors.
        let table_bytes = u64::from(header.table_entries) * ENTRY_BYTES;
        reach.extend_to((header.table_offset + table_bytes).next_unit(512));
        let unit = header.block_size.clamp(*PARKING_UNITS.start(), *PARKING_UNITS.end());
        let facts = HeadFacts {
            cluster_size: Some(header.block_size),
            parking_unit: Some(unit),
            features: vec!["dynamic".into()],
            ..HeadFacts::new(Format::Vhd, footer.virtual_size)
        };
        Self { facts, header, reach }
    }

    /// Bytes of the bitmap before each block: a bit for each sector, padded to whole sectors. The
    /// bitmap is not read, because the sectors that it marks as unused belong to a parent image.
    /// QEMU does not read it either.
    fn bitmap_bytes(&self) -> u64 {
        (self.header.block_size / 512 / 8).next_multiple_of(512)
    }

    /// Adds the block of entry `index` of the table, if it is allocated. The entry is the first
    /// sector of the block.
    fn add_block(&mut self, index: u64, entry: u32, batch: &mut RangeBatch) {
        if entry == UNALLOCATED {
            return;
        }
        let block_size = self.header.block_size;
        let host = Host(u64::from(entry) * 512) + self.bitmap_bytes();
        self.reach.extend_to(host + block_size);
        let guest = Guest(index * block_size);
        let length = block_size.min(guest.remaining_bytes(self.facts.virtual_size));
        for skip in (0..length).step_by(RUN_BYTES) {
            let run = length.min(skip + RUN_BYTES as u64) - skip;
            batch.push_data(host + skip, run, RangeRole::Data, guest + skip);
        }
    }
}

impl ImageLayout for VhdLayout {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn ImageCheck> {
        Box::new(MappedCheck::new(self, image_length))
    }

    fn head_facts(&self) -> &HeadFacts {
        &self.facts
    }

    fn initial_ranges(&mut self, _access: AccessOrder) -> Result<RangeBatch, Error> {
        let mut first = RangeBatch::default();
        let bytes = u64::from(self.header.table_entries) * ENTRY_BYTES;
        first.push_table_parts(self.header.table_offset, bytes, BAT, ENTRY_BYTES);
        Ok(first)
    }

    fn parse_table(&mut self, table: LoadedTable<'_>, batch: &mut RangeBatch) -> Result<(), Error> {
        for (index, entry) in (table.note..).zip(table.bytes.as_chunks().0) {
            self.add_block(index, u32::from_be_bytes(*entry), batch);
        }
        Ok(())
    }

    fn table_name(&self, _kind: u8) -> &'static str {
        "the block allocation table"
    }

    fn check_end(&self, end: Host) -> Result<(), Error> {
        self.reach.check_end(end)
    }
}
