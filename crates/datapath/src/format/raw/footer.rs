//! The part that may follow a raw disk.

use diskimage::{Error as ImageError, Format, Host, TRAILER_BYTES, TrailerKind, vhd};

use crate::error::{Error, FormatError};
use crate::source::Source;

/// Raw disks are whole sectors: a last partial one is filled with zeros, as qemu-img does.
pub const SECTOR: u64 = 512;

/// Meaning that the last bytes of the stream may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndingKind {
    /// Bytes of the disk, whatever they look like.
    Disk,
    /// A [`TrailerKind`], if they are one.
    Sniffed,
    /// The footer of a fixed VHD, or the image is refused.
    Footer,
}

impl EndingKind {
    /// Bytes of the disk if a footer says so: `last` are the last ones of the stream, which has `length`.
    pub fn disk_size(self, last: &[u8; TRAILER_BYTES], length: u64) -> Result<Option<u64>, Error> {
        match self {
            Self::Disk => Ok(None),
            Self::Footer => Ok(Some(vhd::fixed_size(last, length)?)),
            Self::Sniffed => match TrailerKind::detect(last, length) {
                None => Ok(None),
                Some(TrailerKind::FixedVhd { virtual_size }) => Ok(Some(virtual_size)),
                Some(TrailerKind::Dmg) => Err(ImageError::UnsupportedFormat(Format::Dmg).into()),
            },
        }
    }

    /// [`EndingKind::disk_size`] before the stream comes, from a source of `length` bytes that has ranges.
    pub fn disk_size_ahead(self, source: &dyn Source, length: u64) -> Result<Option<u64>, Error> {
        let Some(start) = length.checked_sub(TRAILER_BYTES as u64) else {
            return Ok(None);
        };
        let bytes = source.read_range(start..length)?;
        let last = bytes.first_chunk().ok_or_else(|| {
            FormatError::from(ImageError::Truncated {
                what: "the last sector",
                offset: Host(start),
                end: Host(start.saturating_add(bytes.len() as u64)),
            })
        })?;
        self.disk_size(last, length)
    }

    /// True if a look ahead is worth its request. Disks are whole KiB and a footer is half of one; the few other ones with a
    /// footer are recognized when that comes.
    pub fn is_worth_a_look(self, length: u64) -> bool {
        match self {
            Self::Disk => false,
            Self::Footer => true,
            Self::Sniffed => length % (2 * SECTOR) == SECTOR,
        }
    }
}
