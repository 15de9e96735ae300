//! Parses block headers and LZMA2 chunk headers of an .xz file, which give the length of a block
//! and the memory that its decoder needs. This module only parses bytes in memory.
//!
//! Section numbers refer to the .xz file format 1.2.

use super::super::decoder::EngineError;
use super::framing::{crc32, fail_corrupt, read_vli};

/// The filter ID of LZMA2 (§5.3.1), which is always the last filter of the chain.
const LZMA2: u64 = 0x21;

/// The largest dictionary size code, which means 4 GiB - 1 (§5.3.1).
const MAX_DICTIONARY_CODE: u8 = 40;

/// Number of bytes at the beginning of an LZMA2 chunk that [`parse_chunk_header`] needs.
pub(super) const CHUNK_HEADER_BYTES: usize = 6;

/// Returns the size of the block header that begins with the byte `first` (§3.1.1).
pub(super) fn block_header_bytes(first: u8) -> usize {
    (usize::from(first) + 1) * 4
}

/// Parses a complete block header. Returns the number of dictionary bytes that decoding the block
/// can touch. That is at most the uncompressed size of the block, if the header states it. Fields
/// that do not affect this number are verified by the decoder.
pub(super) fn block_header(bytes: &[u8]) -> Result<u64, EngineError> {
    let Some((fields, crc)) = bytes.split_last_chunk() else {
        return fail_corrupt("its block header is too short");
    };
    if crc32(fields) != u32::from_le_bytes(*crc) {
        return fail_corrupt("the CRC32 of a block header does not match");
    }
    let [_, flags, fields @ ..] = fields else {
        return fail_corrupt("its block header is too short");
    };
    let mut fields = fields;
    let mut field = |is_present: bool| {
        if is_present { header_vli(&mut fields).map(Some) } else { Ok(None) }
    };
    let _compressed = field(flags & 0x40 != 0)?;
    let uncompressed = field(flags & 0x80 != 0)?;
    let filters = (flags & 0x03) + 1;
    // Other filters need hardly any memory. Their properties are verified by the decoder.
    for _ in 1..filters {
        read_filter(&mut fields)?;
    }
    let dictionary = match read_filter(&mut fields)? {
        (LZMA2, &[code]) => dictionary_bytes(code)?,
        _ => return fail_corrupt("the last filter of a block is not LZMA2"),
    };
    Ok(dictionary.min(uncompressed.unwrap_or(u64::MAX)))
}

/// Reads an integer, which has to end within the block header.
fn header_vli(fields: &mut &[u8]) -> Result<u64, EngineError> {
    match read_vli(fields)? {
        Some(value) => Ok(value),
        None => fail_corrupt("the fields of a block header exceed its size"),
    }
}

/// Reads filter flags from the fields of a block header: the filter's ID and its properties
/// (§3.1.5).
fn read_filter<'f>(fields: &mut &'f [u8]) -> Result<(u64, &'f [u8]), EngineError> {
    let id = header_vli(fields)?;
    let length = header_vli(fields)?;
    let properties =
        usize::try_from(length).ok().and_then(|length| fields.split_at_checked(length));
    match properties {
        Some((properties, rest)) => {
            *fields = rest;
            Ok((id, properties))
        }
        None => fail_corrupt("the fields of a block header exceed its size"),
    }
}

/// Returns the dictionary size in bytes for `code`, the only property of LZMA2 (§5.3.1).
fn dictionary_bytes(code: u8) -> Result<u64, EngineError> {
    match code {
        0..MAX_DICTIONARY_CODE => Ok((2 | u64::from(code & 1)) << (code / 2 + 11)),
        MAX_DICTIONARY_CODE => Ok(u64::from(u32::MAX)),
        _ => fail_corrupt("a block uses a reserved dictionary size"),
    }
}

/// The next part of a block's LZMA2 data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lzma2Chunk {
    /// The end marker, which is one byte.
    End,
    /// A chunk of data.
    Data {
        /// Size of the chunk in bytes, header included; at most 64 KiB + 6.
        bytes: u64,
        /// Decoded size of the chunk in bytes; at most 2 MiB.
        decoded: u64,
    },
}

/// Parses the header of the LZMA2 chunk that begins with `head`. `None` if the header is
/// truncated.
///
/// The .xz specification leaves LZMA2 to the reference implementation (XZ Embedded,
/// `xz_dec_lzma2.c`). A chunk begins with a control byte: 0 is the end, 1 and 2 mean an
/// uncompressed chunk, and values from 0x80 contain the upper bits of a compressed chunk's decoded
/// size. The sizes minus one follow in big-endian order, and then a property byte if the control
/// byte is at least 0xC0.
pub(super) fn parse_chunk_header(head: &[u8]) -> Result<Option<Lzma2Chunk>, EngineError> {
    let size = |high, low| u64::from(u16::from_be_bytes([high, low])) + 1;
    Ok(match *head {
        [0, ..] => Some(Lzma2Chunk::End),
        [1 | 2, high, low, ..] => {
            Some(Lzma2Chunk::Data { bytes: 3 + size(high, low), decoded: size(high, low) })
        }
        [control @ 0x80..=0xFF, high, low, packed_high, packed_low, ..] => Some(Lzma2Chunk::Data {
            bytes: 5 + u64::from(control >= 0xC0) + size(packed_high, packed_low),
            decoded: (u64::from(control & 0x1F) << 16) + size(high, low),
        }),
        [3..=0x7F, ..] => {
            return fail_corrupt("the compressed data of a block has an invalid control byte");
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a block header with these fields after the flags, padded and with its CRC32.
    fn sealed(flags: u8, fields: &[u8]) -> Vec<u8> {
        let mut header = [&[0, flags], fields].concat();
        header.resize(header.len().next_multiple_of(4), 0);
        header[0] = u8::try_from(header.len() / 4).unwrap();
        header.extend(crc32(&header).to_le_bytes());
        assert_eq!(header.len(), block_header_bytes(header[0]));
        header
    }

    #[test]
    fn dictionaries_are_read_from_block_headers() {
        for (flags, fields, bytes) in [
            (0x00, &[0x21, 1, 22][..], 8 << 20),
            (0x00, &[0x21, 1, 0], 4096),
            (0x00, &[0x21, 1, 1], 6144),
            (0x00, &[0x21, 1, 40], u64::from(u32::MAX)),
            // Both sizes are present, and the uncompressed size is smaller than the dictionary.
            (0xC0, &[0x85, 1, 0x80, 8, 0x21, 1, 22], 1024),
            // The filters x86 and delta before LZMA2.
            (0x02, &[4, 0, 3, 1, 7, 0x21, 1, 20], 4 << 20),
        ] {
            assert_eq!(block_header(&sealed(flags, fields)).unwrap(), bytes, "{fields:?}");
        }
    }

    #[test]
    fn invalid_block_headers_are_refused() {
        for (flags, fields) in [
            (0x00, &[0x21, 1, 41][..]),
            (0x00, &[0x21, 2, 22, 0]),
            (0x00, &[0x21, 0]),
            (0x00, &[3, 1, 7]),
            (0x00, &[]),
            (0x03, &[4, 0, 0x21, 1, 22]),
            (0x00, &[4, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]),
            (0x40, &[0x80, 0x80]),
            (0x40, &[0x80, 0, 0x21, 1, 22]),
        ] {
            assert!(block_header(&sealed(flags, fields)).is_err(), "{fields:?}");
        }
        let mut damaged = sealed(0, &[0x21, 1, 22]);
        damaged[4] ^= 1;
        assert!(block_header(&damaged).is_err());
        assert!(block_header(&[]).is_err());
    }

    #[test]
    fn chunk_sizes_are_read_as_in_the_reference_decoder() {
        let data = |bytes, decoded| Some(Lzma2Chunk::Data { bytes, decoded });
        for (head, found) in [
            (&[][..], None),
            (&[0], Some(Lzma2Chunk::End)),
            (&[1, 0, 0], data(4, 1)),
            (&[2, 0xFF, 0xFF, 9], data(3 + 65536, 65536)),
            (&[1, 0], None),
            (&[0x80, 0, 0, 0, 0], data(6, 1)),
            (&[0xA1, 0x23, 0x45, 0, 9], data(15, 0x12346)),
            (&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF], data(6 + 65536, 2 << 20)),
            (&[0xE0, 0, 0, 0], None),
        ] {
            assert_eq!(parse_chunk_header(head).unwrap(), found, "{head:?}");
        }
        assert!(parse_chunk_header(&[3]).is_err() && parse_chunk_header(&[0x7F, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_or_refused(flags: u8, bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some(Lzma2Chunk::Data { bytes, decoded })) = parse_chunk_header(&bytes) {
                prop_assert!(bytes <= (64 << 10) + 6 && decoded <= 2 << 20);
            }
            if let Ok(dictionary) = block_header(&sealed(flags, &bytes)) {
                prop_assert!(dictionary <= u64::from(u32::MAX));
            }
        }
    }
}
