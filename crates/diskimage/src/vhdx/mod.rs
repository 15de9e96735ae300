//! VHDX, Hyper-V's format (\[MS-VHDX\], "Virtual Hard Disk v2 (VHDX) File Format"). Section
//! numbers in this module refer to this document.
//!
//! The first MiB contains a file identifier, two headers and two copies of a region table. Regions
//! and payload blocks follow in any order, at multiples of 1 MiB. Two regions matter here: the
//! block allocation table (BAT) and the metadata. A log keeps updates of tables consistent. An
//! image whose log is not empty is refused.

mod bat;
mod check;
mod head;
mod header;
mod metadata;
mod parent;
mod regions;

#[cfg(test)]
mod tests;

use self::bat::{BatEntryError, ENTRY_BYTES, VhdxLayout, bat_entries};
use self::check::VhdxCheck;
use self::header::VhdxHeader;
use self::metadata::VhdxMetadata;
use self::regions::VhdxRegions;
use crate::layout::{AccessOrder, ImageCheck, ImageLayout};
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole};
use crate::{Error, Format, HeadFacts};

/// Reads the head of an image, up to the end of its metadata.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn ImageLayout>, Error> {
    let header = VhdxHeader::parse_current(head)?;
    let regions = VhdxRegions::parse(head, &header)?;
    let metadata = VhdxMetadata::parse(head, &regions.metadata)?;
    Ok(Box::new(VhdxLayout::new(metadata, regions)?))
}

impl ImageLayout for VhdxLayout {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn ImageCheck> {
        Box::new(VhdxCheck::new(*self, image_length))
    }

    fn head_facts(&self) -> &HeadFacts {
        &self.facts
    }

    fn initial_ranges(&mut self, _access: AccessOrder) -> Result<RangeBatch, Error> {
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
        Ok(())
    }

    fn table_name(&self, _kind: u8) -> &'static str {
        "the block allocation table"
    }

    fn check_end(&self, end: Host) -> Result<(), Error> {
        self.reach.check_end(end)
    }
}
