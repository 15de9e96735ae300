//! Checks the block allocation table. Like QEMU (`vhdx_check_bat_entries`), it requires that each
//! block is within the image and outside of all regions.

use super::bat::{BatEntryError, VhdxLayout, bat_entries};
use crate::Error;
use crate::check::places::ReferencedRanges;
use crate::findings::Findings;
use crate::layout::ImageCheck;
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch, WantedRange};

/// State of the check of a VHDX image.
pub(super) struct VhdxCheck {
    image: VhdxLayout,
    image_end: Host,
    places: ReferencedRanges,
}

impl VhdxCheck {
    pub(super) fn new(image: VhdxLayout, image_length: u64) -> Self {
        let image_end = Host(image_length);
        Self { image, image_end, places: ReferencedRanges::new(image_end) }
    }
}

impl ImageCheck for VhdxCheck {
    fn queue_first_tables(
        &mut self,
        _findings: &mut Findings,
        tables: &mut RangeBatch,
    ) -> Result<(), Error> {
        self.image.table_parts(tables);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.places.memory_bytes()
    }

    fn check_table(
        &mut self,
        table: LoadedTable<'_>,
        findings: &mut Findings,
        tables: &mut RangeBatch,
    ) -> Result<(), Error> {
        findings.table_bytes += table.bytes.len() as u64;
        for (index, entry) in bat_entries(table) {
            let block = match self.image.payload_block(index, entry) {
                Ok(block) => block,
                Err(fault) => {
                    let sentence =
                        |what: &str| format!("entry {index} of the block allocation table: {what}");
                    match fault {
                        BatEntryError::OfItsPlace(what) => findings.add_error(|| sentence(&what)),
                        BatEntryError::OfItsState(what) => {
                            findings.error_unknown_to_qemu(|| sentence(&what))
                        }
                    }
                    None
                }
            };
            let Some(block) = block else { continue };
            // The range is not recorded, because nothing overlaps beyond the end of the image.
            if block.end > self.image_end {
                findings.add_error(|| {
                    format!(
                        "the block at {:#x} ends at {:#x}, the image at {:#x}",
                        block.host, block.end, self.image_end
                    )
                });
                continue;
            }
            let length = u32::try_from(block.length).unwrap_or(u32::MAX);
            let want = WantedRange::new_data(block.host, length, block.guest);
            self.places.add_range(&self.image, want, findings, tables);
        }
        Ok(())
    }

    fn finish_check(&mut self, findings: &mut Findings) {
        self.places.check_overlaps(&self.image, findings);
    }
}
