//! Is the block allocation table consistent? As QEMU (`vhdx_check_bat_entries`): blocks are within the image and in no region.

use super::bat::{Fault, Vhdx, entries};
use crate::Error;
use crate::check::{Check, Findings, Places};
use crate::wants::{Batch, Role, Table, Want};

/// The check of an image.
pub(super) struct VhdxCheck {
    image: Vhdx,
    image_length: u64,
    places: Places,
    has_begun: bool,
}

impl VhdxCheck {
    pub(super) fn new(image: Vhdx, image_length: u64) -> Self {
        Self {
            image,
            image_length,
            places: Places::new(image_length),
            has_begun: false,
        }
    }
}

impl Check for VhdxCheck {
    fn next(&mut self, _findings: &mut Findings, tables: &mut Batch) -> Result<(), Error> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.image.table_parts(tables);
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.places.bytes()
    }

    fn learn(
        &mut self,
        table: Table,
        bytes: &[u8],
        findings: &mut Findings,
        tables: &mut Batch,
    ) -> Result<(), Error> {
        findings.table_bytes += bytes.len() as u64;
        for (index, entry) in entries(table.at, bytes) {
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
            if block.end > self.image_length {
                findings.error(|| {
                    format!(
                        "the block at {:#x} ends at {:#x}, the image at {:#x}",
                        block.host, block.end, self.image_length
                    )
                });
                continue;
            }
            let length = u32::try_from(block.length).unwrap_or(u32::MAX);
            let want = Want {
                host: block.host,
                length,
                role: Role::Data,
                at: block.guest,
            };
            self.places.add(&self.image, want, findings, tables);
        }
        Ok(())
    }

    fn finish(&mut self, findings: &mut Findings) {
        self.places.finish(&self.image, findings);
    }
}
