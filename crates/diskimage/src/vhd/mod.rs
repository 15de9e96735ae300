//! VHD, the format of Virtual PC and the older format of Hyper-V ("Virtual Hard Disk Image Format
//! Specification" 1.0).
//!
//! A *dynamic* image consists of a copy of the footer, a dynamic disk header, a block allocation
//! table (BAT) and blocks. A *fixed* image is the disk itself, followed by a footer. Only the last
//! sector distinguishes it from a raw disk; see [`fixed_size`].

mod bat;
mod dynamic;
mod fixed;
mod footer;

#[cfg(test)]
mod tests;

pub use self::fixed::{fixed_size, is_fixed};
pub use self::footer::{COOKIE, FOOTER_BYTES};

use self::bat::VhdLayout;
use self::dynamic::DynamicHeader;
use self::footer::{DiskType, VhdFooter};
use crate::layout::ImageLayout;
use crate::{Error, Format};

/// Reads the head of an image that begins with a footer.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn ImageLayout>, Error> {
    let footer = VhdFooter::parse(head)?;
    match footer.disk_type {
        DiskType::Dynamic => {
            let header = DynamicHeader::parse(head, &footer)?;
            Ok(Box::new(VhdLayout::new(&footer, header)))
        }
        DiskType::Differencing => {
            Err(Error::Parent { format: Format::Vhd, name: dynamic::parent_name(head, &footer)? })
        }
        DiskType::Fixed => Err(Format::Vhd
            .header_error("a fixed disk that begins with a footer, which only dynamic disks do")),
    }
}
