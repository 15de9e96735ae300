//! Fixed disks: the disk, then its footer.

use super::footer::{FOOTER_BYTES, Footer};
use crate::{Error, Format};

/// Bytes of the disk in a fixed image of `image_length` bytes whose last sector is `last`; an error says why it is none.
pub fn fixed_size(last: &[u8], image_length: u64) -> Result<u64, Error> {
    let footer = parse(last, image_length)?;
    let before = before_footer(image_length);
    if footer.virtual_size > before {
        return Err(Error::Truncated {
            what: "the end of the disk",
            offset: footer.virtual_size,
            end: before,
        });
    }
    Ok(footer.virtual_size)
}

/// True if an image of `image_length` bytes whose last sector is `last` is a fixed disk beyond doubt: its footer belongs to
/// exactly the bytes before it. A raw disk may end with a file that is a smaller fixed image.
pub fn is_fixed(last: &[u8], image_length: u64) -> bool {
    fixed_size(last, image_length).is_ok()
        && parse(last, image_length).is_ok_and(|footer| footer.current_size == before_footer(image_length))
}

fn parse(last: &[u8], image_length: u64) -> Result<Footer, Error> {
    let footer = Footer::parse(last)?;
    // QEMU looks for it in the last sector, not in the last 512 bytes.
    if footer.is_fixed() && image_length.is_multiple_of(FOOTER_BYTES as u64) {
        return Ok(footer);
    }
    Err(Error::Header {
        format: Format::Vhd,
        what: format!(
            "the last bytes of the image ({image_length} bytes) are not the footer of a fixed disk"
        ),
    })
}

fn before_footer(image_length: u64) -> u64 {
    image_length.saturating_sub(FOOTER_BYTES as u64)
}
