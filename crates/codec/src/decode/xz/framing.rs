//! Parses the headers and footers around the blocks of an .xz file. This module only parses bytes
//! in memory.
//!
//! Section numbers refer to the .xz file format 1.2.

use flate2::Crc;

use super::super::decoder::{EngineError, advance_input};

/// Size of a stream header (§2.1.1) and of a stream footer (§2.1.2), in bytes.
pub(super) const STREAM_HEADER_BYTES: usize = 12;

/// Header magic bytes (§2.1.1.1).
pub(super) const HEADER_MAGIC: [u8; 6] = [0xFD, b'7', b'z', b'X', b'Z', 0];

/// Footer magic bytes (§2.1.2.4).
const FOOTER_MAGIC: [u8; 2] = *b"YZ";

/// The first byte of an index. In a block header, the same byte holds its size (§3.1.1, §4.1).
pub(super) const INDEX_INDICATOR: u8 = 0;

/// Largest size of a multibyte integer in bytes (§1.2).
pub(super) const MAX_VLI_BYTES: usize = 9;

/// The flags of a stream, which are stored in its header and repeated in its footer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StreamFlags([u8; 2]);

impl StreamFlags {
    /// Parses the two bytes of stream flags (§2.1.1.2).
    fn new(bytes: [u8; 2]) -> Result<Self, EngineError> {
        match bytes {
            [0, 0 | 1 | 4 | 10] => Ok(Self(bytes)),
            [0, 0..=15] => fail_corrupt("its integrity check is of an unknown type"),
            _ => fail_corrupt("its stream flags are not supported"),
        }
    }

    /// Returns the size of the integrity check after each block (§2.1.1.2): none, CRC32, CRC64 or
    /// SHA-256.
    pub(super) fn check_bytes(self) -> u64 {
        match self.0[1] {
            0 => 0,
            1 => 4,
            4 => 8,
            _ => 32,
        }
    }
}

/// Returns an error for corrupt data with this reason.
pub(super) fn fail_corrupt<T>(reason: &str) -> Result<T, EngineError> {
    Err(EngineError::Corrupt(reason.to_owned()))
}

/// Calculates the CRC32 of §6, the same as in gzip.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Parses a stream header (§2.1.1). The caller has already checked the magic bytes.
pub(super) fn stream_header(bytes: &[u8; STREAM_HEADER_BYTES]) -> Result<StreamFlags, EngineError> {
    let [_, _, _, _, _, _, first, second, crc @ ..] = *bytes;
    if crc32(&[first, second]) != u32::from_le_bytes(crc) {
        return fail_corrupt("the CRC32 of its stream header does not match");
    }
    StreamFlags::new([first, second])
}

/// Parses a stream footer (§2.1.2). Returns the flags and the size of the index in bytes.
pub(super) fn stream_footer(
    bytes: &[u8; STREAM_HEADER_BYTES],
) -> Result<(StreamFlags, u64), EngineError> {
    let [a, b, c, d, size @ .., first, second, y, z] = *bytes;
    if [y, z] != FOOTER_MAGIC {
        return fail_corrupt("its stream footer does not end with the magic bytes");
    }
    if crc32(&bytes[4..10]) != u32::from_le_bytes([a, b, c, d]) {
        return fail_corrupt("the CRC32 of its stream footer does not match");
    }
    let index_bytes = (u64::from(u32::from_le_bytes(size)) + 1) * 4;
    Ok((StreamFlags::new([first, second])?, index_bytes))
}

/// Reads a multibyte integer from the front of `bytes` (§1.2). `None` if `bytes` end within the
/// integer.
pub(super) fn read_vli(bytes: &mut &[u8]) -> Result<Option<u64>, EngineError> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(MAX_VLI_BYTES).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            if byte == 0 && index > 0 {
                return fail_corrupt("an integer is not in its shortest form");
            }
            advance_input(bytes, index as u64 + 1);
            return Ok(Some(value));
        }
    }
    if bytes.len() < MAX_VLI_BYTES {
        return Ok(None);
    }
    fail_corrupt("an integer has more than 63 bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The output of `xz --check=crc32` for empty input, laid out as in §2: header, empty index,
    /// footer.
    const EMPTY: [u8; 32] = *b"\xFD7zXZ\0\0\x01\x69\x22\xDE\x36\
        \0\0\0\0\x1C\xDF\x44\x21\
        \x90\x42\x99\x0D\x01\0\0\0\0\x01YZ";

    fn header() -> [u8; 12] {
        *EMPTY.first_chunk().unwrap()
    }

    fn footer() -> [u8; 12] {
        *EMPTY.last_chunk().unwrap()
    }

    #[test]
    fn header_and_footer_agree() {
        let flags = stream_header(&header()).unwrap();
        assert_eq!(flags.check_bytes(), 4);
        assert_eq!(stream_footer(&footer()).unwrap(), (flags, 8));
    }

    #[test]
    fn any_changed_bit_in_header_or_footer_is_detected() {
        for bit in 0..8 * STREAM_HEADER_BYTES {
            let change = 1 << (bit % 8);
            let (mut head, mut foot) = (header(), footer());
            head[bit / 8] ^= change;
            foot[bit / 8] ^= change;
            assert_eq!(stream_header(&head).is_ok(), bit / 8 < HEADER_MAGIC.len());
            assert!(stream_footer(&foot).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn check_types_have_the_sizes_of_the_table() {
        for (id, bytes) in [(0, 0), (1, 4), (4, 8), (10, 32)] {
            assert_eq!(StreamFlags::new([0, id]).unwrap().check_bytes(), bytes);
        }
        for flags in [[0, 2], [0, 15], [0, 16], [1, 1]] {
            assert!(StreamFlags::new(flags).is_err(), "{flags:?}");
        }
    }

    /// Returns the shortest encoding of `value` (§1.2).
    fn encoded(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        bytes.push(value.to_le_bytes()[0]);
        bytes
    }

    proptest! {
        #[test]
        fn encoded_integers_are_read_back(value in 0..1_u64 << 63, tail in prop::collection::vec(any::<u8>(), 0..4)) {
            let bytes = encoded(value);
            let all = [&bytes[..], &tail].concat();
            let mut rest = &all[..];
            prop_assert_eq!(read_vli(&mut rest).unwrap(), Some(value));
            prop_assert_eq!(rest, &tail[..]);
            prop_assert_eq!(read_vli(&mut &bytes[..bytes.len() - 1]).unwrap(), None);
        }

        #[test]
        fn only_the_shortest_encoding_is_read(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut rest = &bytes[..];
            if let Ok(Some(value)) = read_vli(&mut rest) {
                prop_assert_eq!(&encoded(value)[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
