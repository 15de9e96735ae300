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

use self::bat::Vhdx;
use self::header::Header;
use self::metadata::Metadata;
use self::regions::Regions;
use crate::Error;
use crate::layout::Layout;

/// Reads the head of an image, up to the end of its metadata.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn Layout>, Error> {
    let header = Header::current(head)?;
    let regions = Regions::parse(head, &header)?;
    let metadata = Metadata::parse(head, &regions.metadata)?;
    Ok(Box::new(Vhdx::new(metadata, regions)?))
}
