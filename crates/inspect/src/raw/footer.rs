//! The footer that may follow a raw disk.

use diskimage::{Error as ImageError, Format, Host, TRAILER_BYTES, TrailerKind, vhd};

use codec::input::TransferInput;
use stream::error::Error;
use stream::source::Source;

/// Raw disks consist of whole sectors. A partial last sector is filled with zeros, as qemu-img
/// does.
pub const SECTOR: u64 = 512;

/// How the last bytes of the stream are interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndingKind {
    /// As bytes of the disk, whatever they look like.
    Disk,
    /// As a [`TrailerKind`] if they are one, otherwise as bytes of the disk.
    Sniffed,
    /// As the footer of a fixed VHD. Without one the image is rejected.
    Footer,
}

impl EndingKind {
    /// Size of the disk according to its footer, if there is one. `last` are the last bytes of the
    /// stream, and `length` is the length of the whole stream.
    pub(crate) fn disk_size(
        self,
        last: &[u8; TRAILER_BYTES],
        length: u64,
    ) -> Result<Option<u64>, Error> {
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

    /// Like `EndingKind::disk_size`, but before the stream is read. The source must support
    /// ranges and be `length` bytes long; `input` is its stream.
    pub fn disk_size_ahead(
        self,
        source: &dyn Source,
        input: &mut TransferInput,
        length: u64,
    ) -> Result<Option<u64>, Error> {
        let Some(start) = length.checked_sub(TRAILER_BYTES as u64) else {
            return Ok(None);
        };
        let bytes = input.read_ahead(source, start..length)?;
        let last = bytes.first_chunk().ok_or_else(|| {
            let end = Host(start.saturating_add(bytes.len() as u64));
            ImageError::truncated_error("the last sector", Host(start), end)
        })?;
        self.disk_size(last, length)
    }

    /// True if reading the footer ahead is worth a request. Disks are whole KiB and a footer is
    /// half a KiB, so an odd number of sectors suggests a footer. The few other images with a
    /// footer are recognised when it arrives.
    pub fn is_worth_a_look(self, length: u64) -> bool {
        match self {
            Self::Disk => false,
            Self::Footer => true,
            Self::Sniffed => length % (2 * SECTOR) == SECTOR,
        }
    }
}
