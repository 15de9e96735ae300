//! Formats that differ from a raw disk only at the end of the image.

use crate::bytes_at::be32;
use crate::vhd;

/// Bytes at the end of an image that [`TrailerKind::detect`] examines.
pub const TRAILER_BYTES: usize = 512;

/// Kind of an image that is recognised by its last bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrailerKind {
    /// A fixed VHD: the disk, followed by a footer.
    FixedVhd {
        /// Size of the disk in bytes.
        virtual_size: u64,
    },
    /// Apple's disk image (UDIF).
    Dmg,
}

impl TrailerKind {
    /// Detects the kind of an image of `image_length` bytes that begins like a raw disk and ends
    /// with `last`. Returns `None` if it is a raw disk.
    pub fn detect(last: &[u8; TRAILER_BYTES], image_length: u64) -> Option<Self> {
        if is_dmg(last) {
            return Some(Self::Dmg);
        }
        let virtual_size = vhd::fixed_size(last, image_length).ok()?;
        vhd::is_fixed(last, image_length).then_some(Self::FixedVhd { virtual_size })
    }
}

/// Checks the signature, the version (4) and the length of the trailer, as QEMU's driver does. All
/// writers set these fields.
fn is_dmg(last: &[u8; TRAILER_BYTES]) -> bool {
    last.starts_with(b"koly") && be32(last, 4) == Some(4) && be32(last, 8) == Some(512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dmg_is_recognised_by_its_last_bytes() {
        let mut last = [0; TRAILER_BYTES];
        last[..12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
        assert_eq!(TrailerKind::detect(&last, 12_345), Some(TrailerKind::Dmg));
        for at in [0, 7, 10] {
            let mut other = last;
            other[at] ^= 1;
            assert_eq!(TrailerKind::detect(&other, 12_345), None);
        }
    }
}
