//! VMDK: VMware's disks ("Virtual Disk Format 5.0", VMware 2011), those that are one file.
//!
//! * **monolithicSparse**: a grain directory refers to grain tables, those refer to grains of 64 KiB.
//! * **streamOptimized**: grains are compressed, and each has a marker before it that says where it belongs. Tables come
//!   first as qemu-img writes them, or last as VMware and VirtualBox do.
//!
//! QEMU goes by the tables. Where they are known before the data, so do we. A stream that comes once and has them at its end
//! is followed from marker to marker, and compared with its tables when they come.

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
