//! VirtualBox disk images, version 1.1, dynamic and static (VirtualBox, `VDICore.h`; QEMU, `block/vdi.c`).
//!
//! A header, a block map of one number for each MiB of the disk, and the blocks in the order in which they were first
//! written. A static image has the same map, of all its blocks.

mod check;
mod header;
#[cfg(test)]
mod tests;

use crate::bytes_at::le32;
use crate::check::Check;
use crate::layout::{Access, Layout};
use crate::wants::{Batch, Role, Table};
use crate::{Error, Format};
use check::VdiCheck;
use header::{BLOCK_BYTES, Header};

/// A part of the block map.
const BLOCK_MAP: u8 = 0;

/// Bytes of the block map that are one table: what is learned at once. They map 256 GiB of disk.
const TABLE_BYTES: u64 = 1 << 20;

/// Bytes of an entry of the block map.
const ENTRY_BYTES: u64 = 4;

/// Entries from here on are no numbers of blocks: 0xffff_fffe is a block of zeros, 0xffff_ffff one that was never
/// written, which reads as zeros too (`VDICore.h`, `VDI_IMAGE_BLOCK_UNALLOCATED`).
const FIRST_UNALLOCATED: u32 = 0xffff_fffe;

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

/// The first `bytes` of the block map, in parts.
fn map_parts(header: &Header, bytes: u64, tables: &mut Batch) {
    let mut at = 0;
    while at < bytes {
        let length = TABLE_BYTES.min(bytes - at);
        let guest = at / ENTRY_BYTES * BLOCK_BYTES;
        tables.push(header.map_offset + at, length, Role::Table(BLOCK_MAP), guest);
        at += length;
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

    /// Everybody writes the map before the blocks, and then nothing waits.
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
        let mut guest = table.at;
        let mut at = 0;
        while let Some(block) = le32(bytes, at)
            && guest < self.header.virtual_size
        {
            if block < FIRST_UNALLOCATED {
                let host = self.header.data_offset + u64::from(block) * BLOCK_BYTES;
                let length = BLOCK_BYTES.min(self.header.virtual_size - guest);
                blocks.push(host, length, Role::Data, guest);
            }
            guest += BLOCK_BYTES;
            at += 4;
        }
        Ok(())
    }

    fn table_name(&self, _kind: u8) -> &'static str {
        "the block map"
    }
}
