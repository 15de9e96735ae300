//! VMDK, VMware's disk format ("Virtual Disk Format 5.0", VMware 2011). Only disks that consist of
//! a single file are supported:
//!
//! * **monolithicSparse**: a grain directory refers to grain tables, and these refer to grains of
//!   64 KiB.
//! * **streamOptimized**: grains are compressed, and a marker before each grain states its
//!   position on the disk. The tables come first if qemu-img wrote them, and last if VMware or
//!   VirtualBox did.
//!
//! QEMU uses the tables. This crate does the same if the tables are known before the data. A
//! stream that is read in one pass and has its tables at the end is followed from marker to
//! marker, and compared with its tables when they arrive.

mod contents;
mod descriptor;
mod header;
mod kinds;
mod layout;
mod marker;
mod markers;
mod tables;

#[cfg(test)]
mod tests;

pub(crate) use self::descriptor::refuse_descriptor;

use self::descriptor::{check_embedded, text_of};
use self::header::VmdkHeader;
use self::layout::VmdkLayout;
use crate::Error;
use crate::layout::ImageLayout;

/// Reads the header and the descriptor of a sparse extent.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn ImageLayout>, Error> {
    let header = VmdkHeader::parse(head)?;
    let kind = check_embedded(text_of(&header, head)?)?;
    Ok(Box::new(VmdkLayout::new(header, kind)))
}
