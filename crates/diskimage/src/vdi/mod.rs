//! VirtualBox disk images, version 1.1, dynamic and static (VirtualBox, `VDICore.h`; QEMU,
//! `block/vdi.c`).
//!
//! An image consists of a header, a block map with a block number for each MiB of the disk, and
//! the blocks in the order in which they were first written. A static image has the same map, but
//! all of its blocks are allocated.

mod check;
mod header;
#[cfg(test)]
mod tests;

use self::check::VdiCheck;
use self::header::{BLOCK_BYTES, VdiHeader};
use crate::layout::{AccessOrder, ImageCheck, ImageLayout};
use crate::offsets::Guest;
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole};
use crate::{Error, Format, HeadFacts};

/// Table kind: a part of the block map. `LoadedTable::note` is the index of its first entry.
const BLOCK_MAP: u8 = 0;

/// Size of a block map entry in bytes.
const ENTRY_BYTES: u64 = 4;

/// Entries from this value on are not block numbers. 0xffff_fffe is a block of zeros. 0xffff_ffff
/// is a block that was never written and reads as zeros too (`VDICore.h`,
/// `VDI_IMAGE_BLOCK_UNALLOCATED`).
const FIRST_UNALLOCATED: u32 = 0xffff_fffe;

/// Reads the header of an image.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn ImageLayout>, Error> {
    Ok(Box::new(VdiLayout::new(VdiHeader::parse(head)?)))
}

struct VdiLayout {
    facts: HeadFacts,
    header: VdiHeader,
    /// Bytes of the part of the block map that maps the disk.
    map_bytes: u64,
}

impl VdiLayout {
    fn new(header: VdiHeader) -> Self {
        let map_bytes = header.virtual_size.div_ceil(BLOCK_BYTES) * ENTRY_BYTES;
        // Nothing has to be parked if the map comes before the blocks, where all writers store it.
        let waits = header.data_offset < header.map_offset + map_bytes;
        let facts = HeadFacts {
            cluster_size: Some(BLOCK_BYTES),
            parking_unit: waits.then_some(BLOCK_BYTES),
            features: vec![header.kind.to_owned()],
            ..HeadFacts::new(Format::Vdi, header.virtual_size)
        };
        Self { facts, header, map_bytes }
    }
}

impl ImageLayout for VdiLayout {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn ImageCheck> {
        Box::new(VdiCheck::new(self.header, image_length))
    }

    fn head_facts(&self) -> &HeadFacts {
        &self.facts
    }

    fn initial_ranges(&mut self, _access: AccessOrder) -> Result<RangeBatch, Error> {
        let mut first = RangeBatch::default();
        first.push_table_parts(self.header.map_offset, self.map_bytes, BLOCK_MAP, ENTRY_BYTES);
        Ok(first)
    }

    fn parse_table(
        &mut self,
        table: LoadedTable<'_>,
        blocks: &mut RangeBatch,
    ) -> Result<(), Error> {
        for (index, block) in map_entries(table) {
            let guest = Guest(index * BLOCK_BYTES);
            let length = BLOCK_BYTES.min(guest.remaining_bytes(self.header.virtual_size));
            if let Some(block) = block.filter(|_| length > 0) {
                let host = self.header.data_offset + u64::from(block) * BLOCK_BYTES;
                blocks.push_data(host, length, RangeRole::Data, guest);
            }
        }
        Ok(())
    }

    fn table_name(&self, _kind: u8) -> &'static str {
        "the block map"
    }
}

/// Returns the index of each entry in a part of the map, and its block, or `None` if no block is
/// allocated.
fn map_entries(table: LoadedTable<'_>) -> impl Iterator<Item = (u64, Option<u32>)> {
    let entries = table.bytes.as_chunks().0.iter();
    let blocks = entries.map(|entry| u32::from_le_bytes(*entry));
    (table.note..).zip(blocks.map(|block| (block < FIRST_UNALLOCATED).then_some(block)))
}
