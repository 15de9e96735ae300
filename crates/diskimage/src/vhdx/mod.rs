//! VHDX, Hyper-V's format (\[MS-VHDX\], "Virtual Hard Disk v2 (VHDX) File Format"). Section
//! numbers in this module refer to this document.
//!
//! The first MiB contains a file identifier, two headers and two copies of a region table. Regions
//! and payload blocks follow in any order, at multiples of 1 MiB. Two regions matter here: the
//! block allocation table (BAT) and the metadata. A log keeps updates of tables consistent. An
//! image whose log is not empty is refused.

mod bat;
mod check;
mod head;
mod header;
mod metadata;
mod parent;
mod regions;

#[cfg(test)]
mod tests;

use self::bat::VhdxLayout;
use self::header::VhdxHeader;
use self::metadata::VhdxMetadata;
use self::regions::VhdxRegions;
use crate::Error;
use crate::layout::ImageLayout;

/// Reads the head of an image, up to the end of its metadata.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn ImageLayout>, Error> {
    let header = VhdxHeader::parse_current(head)?;
    let regions = VhdxRegions::parse(head, &header)?;
    let metadata = VhdxMetadata::parse(head, &regions.metadata)?;
    Ok(Box::new(VhdxLayout::new(metadata, regions)?))
}
