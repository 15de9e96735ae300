//! Compression of the parts of a read.

use bytes::Buf;
use flate2::{Decompress, FlushDecompress, Status};

use crate::blocks::ProtocolViolation;

/// The bytes are sent as they are.
pub const NONE: u32 = 0;
/// One zlib stream.
pub const ZLIB: u32 = 1;
/// Runs of bytes between zeros, which are left out. Costs the host almost nothing.
pub const SKIP_ZEROS: u32 = 3;

/// How the bytes of a disk travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NfcEncoding {
    /// Encrypted and without zeros, which costs the host almost nothing.
    #[default]
    SkipZeros,
    /// Encrypted and compressed by the host, for slow networks. A public client measured half of
    /// the bytes, and a lower rate on fast networks.
    Zlib,
    /// Without zeros and unencrypted, as VMware's transport `nbd`.
    Clear,
}

impl NfcEncoding {
    /// Returns the compression of fragments that reads ask for.
    pub(super) fn compression(self) -> u32 {
        match self {
            Self::Zlib => ZLIB,
            Self::SkipZeros | Self::Clear => SKIP_ZEROS,
        }
    }
}

/// Unpacks a fragment of `length` bytes. `put` gets its bytes with their offsets in ascending order;
/// what it does not get is zero. `length` was checked against the request, so it may be allocated.
pub fn unpack_fragment(
    compression: u32,
    data: &[u8],
    length: usize,
    put: impl FnMut(usize, &[u8]),
) -> Result<(), ProtocolViolation> {
    let (unpacked, what) = match compression {
        ZLIB => (unpack_zlib(data, length, put), "a zlib stream"),
        SKIP_ZEROS => (unpack_skipped(data, length, put), "the runs"),
        other => {
            return Err(ProtocolViolation(format!("compression {other}, which was not asked for")));
        }
    };
    unpacked.ok_or_else(|| {
        let found = data.len();
        ProtocolViolation(format!("{found} bytes that are not {what} of {length} bytes"))
    })
}

fn unpack_zlib(data: &[u8], length: usize, mut put: impl FnMut(usize, &[u8])) -> Option<()> {
    let mut bytes = vec![0; length];
    let mut zlib = Decompress::new(true);
    let status = zlib.decompress(data, &mut bytes, FlushDecompress::Finish);
    let is_whole = matches!(status, Ok(Status::StreamEnd))
        && usize::try_from(zlib.total_out()) == Ok(length)
        && usize::try_from(zlib.total_in()) == Ok(data.len());
    is_whole.then(|| put(0, &bytes))
}

/// Unpacks length (u32), zero (u32), and runs in ascending order: offset (u32), length (u32) and
/// the bytes.
fn unpack_skipped(mut data: &[u8], length: usize, mut put: impl FnMut(usize, &[u8])) -> Option<()> {
    let next = |data: &mut &[u8]| usize::try_from(data.try_get_u32_le().ok()?).ok();
    if (next(&mut data)?, next(&mut data)?) != (length, 0) {
        return None;
    }
    let mut end = 0;
    while !data.is_empty() {
        let (start, count) = (next(&mut data)?, next(&mut data)?);
        let run = data.split_off(..count)?;
        if start < end || run.is_empty() {
            return None;
        }
        end = start.checked_add(count).filter(|end| *end <= length)?;
        put(start, run);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use proptest::prelude::*;

    use super::*;

    fn unpack(compression: u32, data: &[u8], length: usize) -> Result<Vec<u8>, ProtocolViolation> {
        let mut bytes = vec![0; length];
        unpack_fragment(compression, data, length, |offset, run| {
            bytes[offset..offset + run.len()].copy_from_slice(run);
        })?;
        Ok(bytes)
    }

    /// The runs of `bytes` that are not zero.
    fn skip_zeros(bytes: &[u8]) -> Vec<u8> {
        let mut packed = [u32::try_from(bytes.len()).unwrap(), 0].map(u32::to_le_bytes).concat();
        let mut at = 0;
        for run in bytes.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
            if run[0] != 0 {
                packed.extend(u32::try_from(at).unwrap().to_le_bytes());
                packed.extend(u32::try_from(run.len()).unwrap().to_le_bytes());
                packed.extend(run);
            }
            at += run.len();
        }
        packed
    }

    #[test]
    fn runs_must_be_in_order_and_inside() {
        let packed = |runs: &[[u32; 2]]| {
            let mut packed = [16u32, 0].map(u32::to_le_bytes).concat();
            for [start, count] in runs {
                packed.extend([*start, *count].map(u32::to_le_bytes).concat());
                packed.extend(vec![7; usize::try_from((*count).min(99)).unwrap()]);
            }
            unpack(SKIP_ZEROS, &packed, 16)
        };
        assert_eq!(packed(&[]), Ok(vec![0; 16]));
        assert!(packed(&[[0, 8], [8, 8]]).is_ok());
        for wrong in [
            &[[0, 17]][..],
            &[[15, 2]],
            &[[8, 4], [11, 2]],
            &[[8, 4], [0, 2]],
            &[[0, 0]],
            &[[u32::MAX, 1]],
            &[[0, u32::MAX]],
        ] {
            assert!(packed(wrong).is_err(), "{wrong:?}");
        }
        assert!(unpack(SKIP_ZEROS, &[16, 0, 0, 0, 1, 0, 0, 0], 16).is_err());
        assert!(unpack(SKIP_ZEROS, &[15, 0, 0, 0, 0, 0, 0, 0], 16).is_err());
        assert!(unpack(2, &[0; 8], 16).is_err(), "nobody asked for FastLZ");
    }

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked(
            bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 1..2000),
        ) {
            let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
            zlib.write_all(&bytes).unwrap();
            let zlib = zlib.finish().unwrap();
            for (compression, packed) in [(ZLIB, zlib), (SKIP_ZEROS, skip_zeros(&bytes))] {
                let unpacked = unpack(compression, &packed, bytes.len()).unwrap();
                prop_assert_eq!(unpacked, &bytes[..]);
                prop_assert!(unpack(compression, &packed, bytes.len() + 1).is_err());
                prop_assert!(unpack(compression, &packed[..packed.len() - 1], bytes.len()).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), length in 0usize..5000) {
            for compression in [ZLIB, SKIP_ZEROS] {
                // Runs outside the fragment would panic.
                drop(unpack(compression, &bytes, length));
            }
        }
    }
}
