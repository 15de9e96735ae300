//! Checks the block map. Like QEMU (`vdi_co_check`), it requires that each block has only one
//! entry, and that the number of allocated blocks matches the header.

use super::header::{BLOCK_BYTES, VdiHeader};
use super::{BLOCK_MAP, ENTRY_BYTES, map_entries};
use crate::Error;
use crate::findings::Findings;
use crate::layout::ImageCheck;
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch, bytes_of};

/// State of the check of a VDI image.
pub(super) struct VdiCheck {
    header: VdiHeader,
    image_end: Host,
    /// A bit for each block of the image, set if an entry refers to the block.
    used: Vec<u64>,
    allocated: u64,
    findings: Findings,
}

impl VdiCheck {
    pub(super) fn new(header: VdiHeader, image_length: u64) -> Self {
        let (image_end, findings) = (Host(image_length), Findings::default());
        Self { header, image_end, used: Vec::new(), allocated: 0, findings }
    }

    /// Checks entry `index` of the map, which refers to `block`.
    fn add_entry(&mut self, index: u64, block: u32) {
        let findings = &mut self.findings;
        let blocks = self.header.blocks;
        let word = usize::try_from(block / 64).ok().and_then(|word| self.used.get_mut(word));
        // Like QEMU, do not count an impossible block as allocated, but count a block twice if two
        // entries refer to it.
        let Some(word) = word.filter(|_| u64::from(block) < blocks) else {
            findings.add_error(|| {
                format!("entry {index} of the block map refers to block {block}, but there are only {blocks}")
            });
            return;
        };
        self.allocated += 1;
        if *word >> (block % 64) & 1 == 1 {
            findings.add_error(|| format!("two entries of the block map refer to block {block}"));
        }
        *word |= 1 << (block % 64);
        let length =
            BLOCK_BYTES.min(Guest(index * BLOCK_BYTES).remaining_bytes(self.header.virtual_size));
        findings.data_bytes += length;
        let end = self.header.data_offset + u64::from(block) * BLOCK_BYTES + length;
        if length > 0 && end > self.image_end {
            findings.error_unknown_to_qemu(|| {
                format!("block {block} ends at {end:#x}, the image at {:#x}", self.image_end)
            });
        }
    }
}

impl ImageCheck for VdiCheck {
    fn queue_first_tables(&mut self, tables: &mut RangeBatch) -> Result<(), Error> {
        let words = usize::try_from(self.header.blocks.div_ceil(64)).unwrap_or(usize::MAX);
        if !tables.charge_bytes(bytes_of::<u64>(words)) {
            return Ok(());
        }
        self.used = vec![0; words];
        let bytes = self.header.blocks * ENTRY_BYTES;
        self.findings.table_bytes += bytes;
        let end = self.header.map_offset + bytes;
        if end > self.image_end {
            self.findings.error_unknown_to_qemu(|| {
                format!("the block map ends at {end:#x}, the image at {:#x}", self.image_end)
            });
        }
        tables.push_table_parts(self.header.map_offset, bytes, BLOCK_MAP, ENTRY_BYTES);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        bytes_of::<u64>(self.used.len())
    }

    fn check_table(
        &mut self,
        table: LoadedTable<'_>,
        _tables: &mut RangeBatch,
    ) -> Result<(), Error> {
        debug_assert_eq!(table.kind, BLOCK_MAP);
        for (index, block) in map_entries(table) {
            if let Some(block) = block {
                self.add_entry(index, block);
            }
        }
        Ok(())
    }

    fn finish_check(mut self: Box<Self>) -> Findings {
        let (said, found) = (u64::from(self.header.allocated), self.allocated);
        if said != found {
            self.findings.add_error(|| {
                format!("the header states {said} allocated blocks, the block map has {found}")
            });
        }
        self.findings
    }
}
