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
mod layout;
mod marker;
mod markers;
mod tables;

#[cfg(test)]
mod tests;

pub(crate) use descriptor::refuse_descriptor;

use self::header::Header;
use self::layout::Vmdk;
use crate::layout::Layout;
use crate::{Error, Format};

/// The grain directory.
const DIRECTORY: u8 = 0;
/// A grain table; remembers the first guest byte that it maps.
const GRAIN_TABLE: u8 = 1;
/// The end of an image that can be read at any offset: the footer between its marker and the end-of-stream marker.
const FOOTER: u8 = 2;
/// A marker.
const MARKER: u8 = 3;
/// The type of a marker that is not a grain's; remembers the value of the marker.
const MARKER_TYPE: u8 = 4;
/// A grain table behind its marker.
const MARKED_TABLE: u8 = 5;
/// The grain directory behind its marker.
const MARKED_DIRECTORY: u8 = 6;
/// The footer behind its marker.
const MARKED_FOOTER: u8 = 7;

/// Where QEMU looks for the descriptor, whatever the header says: the second sector.
const DESCRIPTOR_OFFSET: u64 = 512;
/// How much of it QEMU looks at: 20 sectors.
const QEMU_DESCRIPTOR_BYTES: usize = 20 * 512;
/// Largest descriptor: others have 10 KiB.
const MAX_DESCRIPTOR_BYTES: u64 = 256 << 10;

/// Reads the header and the descriptor of a sparse extent.
pub(crate) fn open(head: &[u8]) -> Result<Box<dyn Layout>, Error> {
    let header = Header::parse(head)?;
    let kind = descriptor::check_embedded(descriptor_text(&header, head)?)?;
    Ok(Box::new(Vmdk::new(header, kind)))
}

fn descriptor_text<'h>(header: &Header, head: &'h [u8]) -> Result<&'h [u8], Error> {
    let place = &header.descriptor;
    if place.is_empty() {
        return Err(no_descriptor());
    }
    if place.start != DESCRIPTOR_OFFSET || place.end - place.start > MAX_DESCRIPTOR_BYTES {
        return Err(header::invalid(format!(
            "the descriptor has {} bytes at {:#x} instead of up to {MAX_DESCRIPTOR_BYTES} at {DESCRIPTOR_OFFSET:#x}",
            place.end - place.start,
            place.start
        )));
    }
    let available = head.len() as u64;
    if available < place.end {
        return Err(Error::ShortHeader {
            format: Format::Vmdk,
            needed: place.end,
            available,
        });
    }
    let end = place
        .end
        .max(DESCRIPTOR_OFFSET + QEMU_DESCRIPTOR_BYTES as u64)
        .min(available);
    let range = usize::try_from(place.start).ok().zip(usize::try_from(end).ok());
    match range.and_then(|(start, end)| head.get(start..end)) {
        None | Some([] | [0, ..]) => Err(no_descriptor()),
        Some(text) => Ok(text),
    }
}

fn no_descriptor() -> Error {
    Error::Unsupported {
        format: Format::Vmdk,
        what: "it has no descriptor, so it is one of several files of a disk: make one file of them with `qemu-img convert -O qcow2` and their descriptor".into(),
    }
}

fn corrupt(what: impl Into<String>, offset: u64) -> Error {
    Error::Corrupt {
        format: Format::Vmdk,
        what: what.into(),
        offset,
    }
}
