//! Detects the codec of a stream from its first bytes.
//!
//! A raw disk may begin with any bytes and must never be mistaken for a compressed stream. Every
//! test therefore checks all bits that the format fixes. In case of doubt, no codec is reported.

use stream::codec::Codec;
use stream::error::DecodeError;

use super::bzip2::Bzip2Engine;
use super::decoder::DecoderEngine;
use super::gzip::GzipEngine;
use super::xz::XzEngine;
use super::zstd::begins_frames;

/// Number of bytes to pass to [`sniff_codec`]. The codecs need 18; the rest leaves room for
/// skippable frames before a zstd stream.
pub const SNIFF_BYTES: usize = 512;

/// Returns the codec whose stream begins with `head`, the first [`SNIFF_BYTES`] of the stream (or
/// all of it, if it is shorter).
pub fn sniff_codec(head: &[u8]) -> Option<Codec> {
    if GzipEngine::is_member_start(head) {
        Some(Codec::Gzip)
    } else if XzEngine::is_member_start(head) {
        Some(Codec::Xz)
    } else if begins_frames(head) {
        Some(Codec::Zstd)
    } else if Bzip2Engine::is_member_start(head) {
        Some(Codec::Bzip2)
    } else {
        None
    }
}

/// Fails if `head` is clearly the beginning of a compressed format that is not supported.
///
/// Formats with a short magic number or without one are not detected: a raw disk could begin with
/// the same bytes.
pub fn check_supported(head: &[u8]) -> Result<(), DecodeError> {
    let name = match *head {
        // LZ4 frame: FLG contains version 01 and a zero reserved bit; BD contains only a block
        // size of 4 to 7.
        [0x04, 0x22, 0x4D, 0x18, flags, block, ..]
            if flags & 0b1100_0010 == 0b0100_0000
                && block & 0b1000_1111 == 0
                && block >> 4 >= 4 =>
        {
            "lz4"
        }
        // lzip: version 1, dictionary of 2^12 to 2^29 bytes (minus a fraction in the upper three
        // bits).
        [b'L', b'Z', b'I', b'P', 1, dictionary, ..] if (12..=29).contains(&(dictionary & 0x1F)) => {
            "lzip"
        }
        _ if begins_zip(head) => "zip",
        // 7z signature and major version 0.
        [b'7', b'z', 0xBC, 0xAF, 0x27, 0x1C, 0, ..] => "7z",
        _ => return Ok(()),
    };
    Err(DecodeError::Unsupported(name))
}

/// Version 6.3 of the zip specification, times ten: the newest that an entry may need.
const ZIP_VERSION: u8 = 63;

/// Size of a local file header in bytes, before the name, and the offset of the name's length in it
/// (APPNOTE 4.3.7).
const ZIP_HEADER: usize = 30;
const ZIP_NAME_LEN: usize = 26;

/// Longest path of a file in bytes (Linux, `PATH_MAX`).
const MAX_PATH: u16 = 4096;

/// True for the local file header of a zip, whatever its method and the system that wrote it. In an
/// archive of several parts, a mark comes before it (APPNOTE 8.5.3, 8.5.4).
fn begins_zip(head: &[u8]) -> bool {
    let marks: [&[u8]; 2] = [b"PK\x07\x08", b"PK00"];
    let header = marks.iter().find_map(|mark| head.strip_prefix(*mark)).unwrap_or(head);
    let Some((fixed, rest)) = header.split_at_checked(ZIP_HEADER) else { return false };
    let name_len = u16::from_le_bytes([fixed[ZIP_NAME_LEN], fixed[ZIP_NAME_LEN + 1]]);
    let name = rest.get(..usize::from(name_len)).unwrap_or(rest);
    fixed.starts_with(b"PK\x03\x04")
        && fixed[4] <= ZIP_VERSION
        && (1..=MAX_PATH).contains(&name_len)
        && !name.iter().any(u8::is_ascii_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_numbers_alone_are_not_enough() {
        for (what, head) in [
            ("gzip with a reserved flag", &[0x1F, 0x8B, 8, 0x20, 0, 0, 0, 0, 0, 3][..]),
            ("gzip with another method", &[0x1F, 0x8B, 7, 0, 0, 0, 0, 0, 0, 3]),
            ("zstd with the reserved bit", &[0x28, 0xB5, 0x2F, 0xFD, 0x08, 0x58]),
            ("a skippable frame before anything else", b"\x50\x2A\x4D\x18\x01\0\0\0x\x7FELF"),
            ("a skippable frame that ends the head", b"\x5F\x2A\x4D\x18\x01\0\0\0x"),
            ("a skippable frame of 4 GiB", b"\x5F\x2A\x4D\x18\xFF\xFF\xFF\xFFx"),
            ("bzip2 level 0", b"BZh01AY&SY"),
            ("bzip2 without a block", b"BZh9 is a label"),
            ("lz4 of another version", &[0x04, 0x22, 0x4D, 0x18, 0x80, 0x40]),
            ("lzip with a tiny dictionary", b"LZIP\x01\x01"),
            ("PK in a boot sector", b"PK\x03\x04\xEB\x3C\x90"),
            (
                "a zip without a name",
                b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0disk",
            ),
            ("a boot sector", b"\xEB\x63\x90\0\0\0\0\0\0\0"),
            ("qcow2", b"QFI\xFB\0\0\0\x03"),
        ] {
            assert_eq!(sniff_codec(head), None, "{what}");
            assert!(check_supported(head).is_ok(), "{what}");
        }
    }

    #[test]
    fn unsupported_formats_are_refused_by_name() {
        for (name, head) in [
            ("lz4", &[0x04, 0x22, 0x4D, 0x18, 0x64, 0x40, 0xA7][..]),
            ("lzip", b"LZIP\x01\x17"),
            (
                "zip",
                b"PK\x03\x04\x14\x03\x01\0\x63\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0disk",
            ),
            ("7z", b"7z\xBC\xAF\x27\x1C\0\x04"),
        ] {
            assert_eq!(sniff_codec(head), None, "{name}");
            let Err(DecodeError::Unsupported(found)) = check_supported(head) else {
                panic!("{name} is not refused");
            };
            assert_eq!(found, name);
        }
    }

    #[test]
    fn no_prefix_of_a_head_panics() {
        let heads: [&[u8]; 5] = [
            &[0x1F, 0x8B, 8, 0],
            b"\xFD7zXZ\0",
            b"\x50\x2A\x4D\x18\x01\0\0\0x\x28\xB5\x2F\xFD\x04",
            b"BZh91AY&SY",
            b"LZIP\x01\x17",
        ];
        for head in heads {
            let recognised = (0..=head.len())
                .filter(|&end| {
                    sniff_codec(&head[..end]).is_some() || check_supported(&head[..end]).is_err()
                })
                .count();
            assert!(recognised > 0 && recognised < head.len());
        }
    }
}
