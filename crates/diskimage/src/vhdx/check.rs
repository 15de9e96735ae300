//! Checks the block allocation table. Like QEMU (`vhdx_check_bat_entries`), it requires that each
//! block is within the image and outside of all regions.

use super::bat::{BatEntryError, VhdxLayout, bat_entries};
use crate::Error;
use crate::check::places::ReferencedRanges;
use crate::findings::Findings;
use crate::layout::ImageCheck;
use crate::wanted_ranges::{LoadedTable, RangeBatch, WantedRange};

/// State of the check of a VHDX image.
pub(super) struct VhdxCheck {
    image: VhdxLayout,
    places: ReferencedRanges,
}

impl VhdxCheck {
    pub(super) fn new(image: VhdxLayout, image_length: u64) -> Self {
        Self { image, places: ReferencedRanges::new(image_length) }
    }
}

impl ImageCheck for VhdxCheck {
    fn queue_first_tables(&mut self, tables: &mut RangeBatch) -> Result<(), Error> {
        self.image.table_parts(tables);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.places.memory_bytes()
    }

    fn check_table(
        &mut self,
        table: LoadedTable<'_>,
        tables: &mut RangeBatch,
    ) -> Result<(), Error> {
        self.places.findings.table_bytes += table.bytes.len() as u64;
        for (index, entry) in bat_entries(table) {
            let findings = &mut self.places.findings;
            let sentence =
                |what: String| format!("entry {index} of the block allocation table: {what}");
            let block = match self.image.payload_block(index, entry) {
                Ok(Some(block)) => block,
                Ok(None) => continue,
                Err(BatEntryError::OfItsPlace(what)) => {
                    findings.add_error(|| sentence(what));
                    continue;
                }
                Err(BatEntryError::OfItsState(what)) => {
                    findings.error_unknown_to_qemu(|| sentence(what));
                    continue;
                }
            };
            // The range is not recorded, because nothing overlaps beyond the end of the image.
            let image_end = self.places.image_end;
            if block.end > image_end {
                findings.add_error(|| {
                    let (start, end) = (block.host, block.end);
                    format!("the block at {start:#x} ends at {end:#x}, the image at {image_end:#x}")
                });
                continue;
            }
            let length = u32::try_from(block.length).unwrap_or(u32::MAX);
            let want = WantedRange::new_data(block.host, length, block.guest);
            self.places.add_range(&self.image, want, tables);
        }
        Ok(())
    }

    fn finish_check(self: Box<Self>) -> Findings {
        self.places.check_overlaps(&self.image)
    }
}
