//! VirtualBox disk images, version 1.1, dynamic and static (VirtualBox, `VDICore.h`; QEMU, `block/vdi.c`).
//!
//! A header, a block map of one number for each MiB of the disk, and the blocks in the order in which they were first
//! written. A static image has the same map, of all its blocks.

mod check;
mod header;
mod map;
#[cfg(test)]
mod tests;

use self::check::VdiCheck;
use self::header::{BLOCK_BYTES, Header};
use self::map::{BLOCK_MAP, ENTRY_BYTES, entries};
use crate::layout::{Access, Check, Layout};
use crate::offsets::Guest;
use crate::wants::{Batch, Role, Table};
use crate::{Error, Facts, Format};

/// Reads the header.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn Layout>, Error> {
    Ok(Box::new(Vdi::new(Header::parse(head)?)))
}

struct Vdi {
    facts: Facts,
    header: Header,
    /// Bytes of the block map, as far as it maps the disk.
    map_bytes: u64,
}

impl Vdi {
    fn new(header: Header) -> Self {
        let map_bytes = header.virtual_size.div_ceil(BLOCK_BYTES) * ENTRY_BYTES;
        // All writers put the map before the blocks, and then nothing waits.
        let waits = header.data_offset < header.map_offset + map_bytes;
        let facts = Facts {
            cluster_size: Some(BLOCK_BYTES),
            parking_unit: waits.then_some(BLOCK_BYTES),
            features: vec![header.kind.to_owned()],
            ..Facts::new(Format::Vdi, header.virtual_size)
        };
        Self {
            facts,
            header,
            map_bytes,
        }
    }
}

impl Layout for Vdi {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn Check> {
        Box::new(VdiCheck::new(self.header, image_length))
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn begin(&mut self, _access: Access) -> Result<Batch, Error> {
        let mut first = Batch::default();
        first.push_table_parts(self.header.map_offset, self.map_bytes, BLOCK_MAP, ENTRY_BYTES);
        Ok(first)
    }

    fn learn(&mut self, table: Table<'_>, blocks: &mut Batch) -> Result<(), Error> {
        for (index, block) in entries(table) {
            let guest = Guest(index * BLOCK_BYTES);
            let length = BLOCK_BYTES.min(guest.left(self.header.virtual_size));
            if let Some(block) = block.filter(|_| length > 0) {
                let host = self.header.data_offset + u64::from(block) * BLOCK_BYTES;
                blocks.push(host, length, Role::Data, guest);
            }
        }
        Ok(())
    }

    fn table_name(&self, _kind: u8) -> &'static str {
        "the block map"
    }
}
