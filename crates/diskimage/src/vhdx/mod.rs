//! VHDX, Hyper-V's format (\[MS-VHDX\], "Virtual Hard Disk v2 (VHDX) File Format").
//!
//! The first MiB has a file identifier, two headers and two copies of a region table. Regions, of which those of the block
//! allocation table (BAT) and of the metadata matter here, and payload blocks lie behind it in any order, at multiples of a
//! MiB. A log keeps updates of tables consistent: an image whose log is not empty is refused.

mod bat;
mod check;
mod guid;
mod head;
mod header;
mod layout;
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
