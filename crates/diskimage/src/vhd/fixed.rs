//! Fixed disks: the disk itself, followed by its footer.

use super::footer::{FOOTER_BYTES, VhdFooter};
use crate::offsets::Host;
use crate::{Error, Format};

/// Returns the size in bytes of the disk in a fixed image of `image_length` bytes whose last 512
/// bytes are `last`. Fails with the reason if they are not the end of a fixed image.
pub fn fixed_size(last: &[u8], image_length: u64) -> Result<u64, Error> {
    Ok(parse_footer(last, image_length)?.virtual_size)
}

/// Returns true if an image of `image_length` bytes whose last 512 bytes are `last` is certainly a
/// fixed disk, because its footer describes exactly the bytes before it. This excludes a raw disk
/// whose last file happens to be a smaller fixed image.
pub fn is_fixed(last: &[u8], image_length: u64) -> bool {
    parse_footer(last, image_length)
        .is_ok_and(|footer| footer.current_size == before_footer(image_length))
}

/// Reads the footer in the last sector, and checks that the whole disk is present. As in QEMU, an
/// image that ends within a sector is read as if zeros followed.
fn parse_footer(last: &[u8], image_length: u64) -> Result<VhdFooter, Error> {
    let sector_at = usize::try_from(padding_bytes(image_length)).unwrap_or(usize::MAX);
    let mut sector = last.get(sector_at..).unwrap_or_default().to_vec();
    sector.resize(last.len(), 0);
    let footer = VhdFooter::parse(&sector)?;
    if !footer.is_fixed() {
        return Err(Format::Vhd
            .header_error("the footer at the end of the image does not describe a fixed disk"));
    }
    let before = before_footer(image_length);
    if footer.virtual_size > before {
        let disk_end = Host(footer.virtual_size);
        return Err(Error::truncated_error("the end of the disk", disk_end, Host(before)));
    }
    Ok(footer)
}

/// Returns the number of bytes that are missing from the last sector of the image.
fn padding_bytes(image_length: u64) -> u64 {
    image_length.wrapping_neg() % FOOTER_BYTES as u64
}

/// Returns the number of bytes before the last sector.
fn before_footer(image_length: u64) -> u64 {
    image_length.saturating_add(padding_bytes(image_length)).saturating_sub(FOOTER_BYTES as u64)
}
