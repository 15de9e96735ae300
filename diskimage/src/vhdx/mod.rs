//! VHDX, Hyper-V's format (\[MS-VHDX\], "Virtual Hard Disk v2 (VHDX) File Format").
//!
//! The first MiB has a file identifier, two headers and two copies of a region table. Regions, of which those of the block
//! allocation table (BAT) and of the metadata matter here, and payload blocks lie behind it in any order, at multiples of a
//! MiB. A log keeps updates of tables consistent: an image whose log is not empty is refused.

mod bat;
mod check;
mod guid;
mod header;
mod metadata;
mod parent;
mod regions;

/// The tests of other crates build the same images.
#[cfg(test)]
#[path = "../../../testkit/src/images/vhdx.rs"]
#[allow(dead_code, unreachable_pub, reason = "each crate uses a part")]
mod building;
#[cfg(test)]
mod tests;

use self::bat::Vhdx;
use self::header::Header;
use self::metadata::Metadata;
use self::regions::Regions;
use crate::layout::Layout;
use crate::{Error, Format, MAX_HEAD_BYTES};

/// Where regions and blocks begin (2.1: "Objects in the file are aligned to 1 MB").
const ALIGNMENT: u64 = 1 << 20;

/// Reads the head of an image, up to the end of its metadata.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn Layout>, Error> {
    let header = Header::current(head)?;
    let regions = Regions::parse(head, &header)?;
    let metadata = Metadata::parse(head, &regions.metadata)?;
    Ok(Box::new(Vhdx::new(metadata, regions)?))
}

/// Bytes of the head, which may have to be longer for them.
fn bytes_of(head: &[u8], range: std::ops::Range<u64>) -> Result<&[u8], Error> {
    if range.end > MAX_HEAD_BYTES as u64 {
        return Err(Error::Unsupported {
            format: Format::Vhdx,
            what: format!(
                "what tells its size lies up to offset {:#x}, behind the first {MAX_HEAD_BYTES} bytes: convert it once with `qemu-img convert -O qcow2`",
                range.end
            ),
        });
    }
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    head.get(start..end).ok_or(Error::ShortHeader {
        format: Format::Vhdx,
        needed: range.end,
        available: head.len() as u64,
    })
}

/// The CRC-32C of a structure whose checksum, at bytes 4 to 7, counts as zero (2.2.2, 2.2.3.1).
fn is_intact(structure: &[u8]) -> bool {
    let Some((signature, rest)) = structure.split_at_checked(4) else {
        return false;
    };
    let Some((stated, rest)) = rest.split_at_checked(4) else {
        return false;
    };
    let calculated = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(signature), &[0; 4]), rest);
    stated == calculated.to_le_bytes()
}

fn wrong(what: impl Into<String>) -> Error {
    Error::Header {
        format: Format::Vhdx,
        what: what.into(),
    }
}
