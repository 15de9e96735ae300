//! Access to the structures in the head of an image, and the GUIDs in them.

use std::ops::Range;

use crate::memory::MAX_HEAD_BYTES;
use crate::offsets::Host;
use crate::{Error, Format};

/// Alignment of regions and blocks (2.1: "Objects in the file are aligned to 1 MB").
pub(super) const ALIGNMENT: u64 = 1 << 20;

/// Returns a range of the head. If the head is too short, the error states how many bytes are
/// needed. Ranges beyond [`MAX_HEAD_BYTES`] are not supported.
pub(super) fn bytes_of(head: &[u8], range: Range<Host>) -> Result<&[u8], Error> {
    if range.end > Host(MAX_HEAD_BYTES as u64) {
        return Err(Format::Vhdx.unsupported_error(format!(
            "the metadata with the disk size extends to offset {:#x}, beyond the first {MAX_HEAD_BYTES} bytes: convert it once with \
             `qemu-img convert -O qcow2`",
            range.end
        )));
    }
    let at = |place: Host| usize::try_from(place.0).unwrap_or(usize::MAX);
    let bytes = head.get(at(range.start)..at(range.end));
    bytes.ok_or_else(|| Format::Vhdx.short_header_error(range.end.0, head))
}

/// Verifies the CRC-32C of a structure. The checksum itself, at bytes 4 to 7, counts as zero
/// (2.2.2, 2.2.3.1).
pub(super) fn is_intact(structure: &[u8]) -> bool {
    let Some((signature, rest)) = structure.split_at_checked(4) else {
        return false;
    };
    let Some((stated, rest)) = rest.split_at_checked(4) else {
        return false;
    };
    let calculated =
        crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(signature), &[0; 4]), rest);
    stated == calculated.to_le_bytes()
}

/// A GUID whose first three fields are little-endian. The other bytes are in written order.
pub(super) type Guid = [u8; 16];

/// Converts the hexadecimal digits of a written GUID.
pub(super) const fn guid_from_digits(digits: u128) -> Guid {
    let [a, b, c, d, e, f, g, h, rest @ ..] = digits.to_be_bytes();
    let [i, j, k, l, m, n, o, p] = rest;
    [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
}

/// The GUID of zeros, which means "no GUID". A header with this log GUID has an empty log.
pub(super) const NONE: Guid = [0; 16];

/// Refuses an unknown region or item whose flag "Required" is set: a reader that does not support
/// it must not read the image.
pub(super) fn refuse_unknown(what: &str, guid: Guid, is_required: bool) -> Result<(), Error> {
    if !is_required {
        return Ok(());
    }
    let name = u128::from_be_bytes(guid);
    Err(Error::UnknownFeatures(format!("VHDX {what} {name:032x}")))
}
