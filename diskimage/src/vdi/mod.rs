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
use self::map::{ENTRY_BYTES, entries, map_parts};
use crate::layout::{Access, Check, Layout};
use crate::offsets::Guest;
use crate::wants::{Batch, Role, Table};
use crate::{Error, Format};

/// Reads the header.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn Layout>, Error> {
    Ok(Box::new(Vdi {
        header: Header::parse(head)?,
    }))
}

struct Vdi {
    header: Header,
}

impl Vdi {
    /// Bytes of the block map, as far as it maps the disk.
    fn map_bytes(&self) -> u64 {
        self.header.virtual_size.div_ceil(BLOCK_BYTES) * ENTRY_BYTES
    }
}

impl Layout for Vdi {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn Check> {
        Box::new(VdiCheck::new(self.header, image_length))
    }

    fn format(&self) -> Format {
        Format::Vdi
    }

    fn virtual_size(&self) -> u64 {
        self.header.virtual_size
    }

    fn cluster_size(&self) -> Option<u64> {
        Some(BLOCK_BYTES)
    }

    fn features(&self) -> Vec<String> {
        vec![self.header.kind.to_string()]
    }

    /// All writers put the map before the blocks, and then nothing waits.
    fn parking_unit(&self) -> Option<u64> {
        let map_end = self.header.map_offset + self.map_bytes();
        (self.header.data_offset < map_end).then_some(BLOCK_BYTES)
    }

    fn begin(&mut self, _access: Access) -> Result<Batch, Error> {
        let mut first = Batch::default();
        map_parts(&self.header, self.map_bytes(), &mut first);
        Ok(first)
    }

    fn learn(&mut self, table: Table, bytes: &[u8], blocks: &mut Batch) -> Result<(), Error> {
        for (index, block) in entries(table, bytes) {
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
