//! Implements the layout interface for the VHDX format.

use super::bat::{BatEntryError, ENTRY_BYTES, VhdxLayout, bat_entries};
use super::check::VhdxCheck;
use crate::layout::{AccessOrder, ImageCheck, ImageLayout};
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole};
use crate::{Error, Format, HeadFacts};

impl ImageLayout for VhdxLayout {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn ImageCheck> {
        Box::new(VhdxCheck::new(*self, image_length))
    }

    fn head_facts(&self) -> &HeadFacts {
        &self.facts
    }

    fn initial_ranges(&mut self, access: AccessOrder) -> Result<RangeBatch, Error> {
        self.reach.set_image_end(access);
        let mut first = RangeBatch::default();
        self.table_parts(&mut first);
        Ok(first)
    }

    fn parse_table(&mut self, table: LoadedTable<'_>, batch: &mut RangeBatch) -> Result<(), Error> {
        for (index, entry) in bat_entries(table) {
            let block = self.payload_block(index, entry).map_err(|fault| {
                let (BatEntryError::OfItsPlace(what) | BatEntryError::OfItsState(what)) = fault;
                Format::Vhdx.corrupt_error(what, self.regions.bat.start + index * ENTRY_BYTES)
            })?;
            if let Some(block) = block {
                self.reach.extend_to(block.end);
                batch.push_data(block.host, block.length, RangeRole::Data, block.guest);
            }
        }
        self.reach.check_known_end()
    }

    fn table_name(&self, _kind: u8) -> &'static str {
        "the block allocation table"
    }

    fn check_end(&mut self, end: Host) -> Result<(), Error> {
        self.reach.check_final_end(end)
    }
}
