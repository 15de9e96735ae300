//! The check of the block allocation table. As QEMU (`vhdx_check_bat_entries`): blocks are within the image and in no region.

use super::bat::{Fault, Vhdx, entries};
use crate::Error;
use crate::check::places::Places;
use crate::findings::Findings;
use crate::layout::Check;
use crate::offsets::Host;
use crate::wants::{Batch, Table, Want};

/// The check of an image.
pub(super) struct VhdxCheck {
    image: Vhdx,
    image_end: Host,
    places: Places,
}

impl VhdxCheck {
    pub(super) fn new(image: Vhdx, image_length: u64) -> Self {
        let image_end = Host(image_length);
        Self {
            image,
            image_end,
            places: Places::new(image_end),
        }
    }
}

impl Check for VhdxCheck {
    fn begin(&mut self, _findings: &mut Findings, tables: &mut Batch) -> Result<(), Error> {
        self.image.table_parts(tables);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.places.bytes()
    }

    fn learn(&mut self, table: Table<'_>, findings: &mut Findings, tables: &mut Batch) -> Result<(), Error> {
        findings.table_bytes += table.bytes.len() as u64;
        for (index, entry) in entries(table) {
            let block = match self.image.block(index, entry) {
                Ok(block) => block,
                Err(fault) => {
                    let sentence =
                        |what: &str| format!("entry {index} of the block allocation table: {what}");
                    match fault {
                        Fault::OfItsPlace(what) => findings.error(|| sentence(&what)),
                        Fault::OfItsState(what) => findings.error_unknown_to_qemu(|| sentence(&what)),
                    }
                    None
                }
            };
            let Some(block) = block else { continue };
            // Not taken for a place: what lies behind the end overlaps nothing.
            if block.end > self.image_end {
                findings.error(|| {
                    format!(
                        "the block at {:#x} ends at {:#x}, the image at {:#x}",
                        block.host, block.end, self.image_end
                    )
                });
                continue;
            }
            let length = u32::try_from(block.length).unwrap_or(u32::MAX);
            let want = Want::data(block.host, length, block.guest);
            self.places.add(&self.image, want, findings, tables);
        }
        Ok(())
    }

    fn finish(&mut self, findings: &mut Findings) {
        self.places.finish(&self.image, findings);
    }
}
