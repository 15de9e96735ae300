//! Tests of the header alone. `references` tests both routes with whole images.

use testkit::images::qcow2::{Guest, Qcow2};

use super::Qcow2Header;
use crate::Error;

mod references;

fn patched(patch: impl FnOnce(&mut Vec<u8>)) -> Result<Qcow2Header, Error> {
    let mut bytes = Qcow2::new(9, vec![Guest::Data(1)]).build().image;
    patch(&mut bytes);
    Qcow2Header::parse(&bytes)
}

#[test]
fn header_fields_are_accepted_up_to_their_limits() {
    assert!(patched(|_| {}).is_ok());
    let put32 =
        |at: usize, value: u32| patched(|b| b[at..at + 4].copy_from_slice(&value.to_be_bytes()));
    for bits in [8, 22, u32::MAX] {
        assert!(matches!(put32(20, bits), Err(Error::Header { .. })), "cluster_bits {bits}");
    }
    assert!(put32(4, 4).is_err());
    assert!(put32(96, 6).is_ok());
    assert!(put32(96, 7).is_err());
    assert!(put32(100, 103).is_err());
    assert!(put32(100, 513).is_err());
    assert_eq!(put32(32, 1), Err(Error::Encrypted("AES")));
    assert_eq!(put32(32, 2), Err(Error::Encrypted("LUKS")));
    assert!(put32(36, 4 << 20).is_ok());
    assert!(put32(36, (4 << 20) + 1).unwrap_err().to_string().contains("L1 size too big"));
    assert!(put32(36, 0).unwrap_err().to_string().ends_with("needs 1"));
    assert!(put32(56, 0).is_err());
    assert!(put32(44, 513).is_err());
}

#[test]
fn references_to_other_files_are_refused_by_name() {
    let backing = patched(|b| {
        b[8..16].copy_from_slice(&200u64.to_be_bytes());
        b[16..20].copy_from_slice(&4u32.to_be_bytes());
        b[200..204].copy_from_slice(b"base");
    });
    assert_eq!(backing, Err(Error::BackingFile("base".into())));
    let data_file = patched(|b| {
        b[79] = 4;
        b[104..112].copy_from_slice(&[0x44, 0x41, 0x54, 0x41, 0, 0, 0, 5]);
        b[112..117].copy_from_slice(b"/etc/");
    });
    assert_eq!(data_file, Err(Error::DataFile("/etc/".into())));
}

#[test]
fn unknown_features_are_refused_by_name_or_number() {
    assert_eq!(patched(|b| b[72] = 0x80), Err(Error::UnknownFeatures("bit 63".into())));
    let named = patched(|b| {
        b[78] = 1;
        b[104..112].copy_from_slice(&[0x68, 0x03, 0xf8, 0x57, 0, 0, 0, 48]);
        b[112] = 0;
        b[113] = 8;
        b[114..120].copy_from_slice(b"sparks");
    });
    assert_eq!(named, Err(Error::UnknownFeatures("sparks".into())));
}

#[test]
fn dirty_and_corrupt_images_are_accepted_as_in_qemu() {
    let header = patched(|b| b[79] = 3).unwrap();
    assert!(header.dirty && header.corrupt);
}

#[test]
fn the_size_is_rounded_down_to_sectors() {
    let header = patched(|b| b[24..32].copy_from_slice(&511u64.to_be_bytes())).unwrap();
    assert_eq!(header.virtual_size, 0);
}

/// Returns the refusal of an image with these header extensions, or an empty text if it is
/// accepted.
fn extended(extensions: &[u8], autoclear: u8) -> String {
    let refused = patched(|bytes| {
        bytes[104..104 + extensions.len()].copy_from_slice(extensions);
        bytes[95] = autoclear;
    });
    refused.map_or_else(|error| error.to_string(), |_| String::new())
}

/// Returns an extension of this kind, whose content is padded with zeros.
fn extension(kind: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap();
    let mut bytes = [kind.to_be_bytes(), length.to_be_bytes()].concat();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[test]
fn extensions_must_end_in_the_first_cluster_as_in_qemu() {
    let unknown = |length: usize| extension(0x1234_5678, &vec![7; length]);
    let room = 512 - 104 - 8;
    // Without an end marker, and exactly up to the limit.
    assert_eq!(extended(&unknown(room), 0), "");
    let cut = |length: u32| [&unknown(0)[..4], &length.to_be_bytes()].concat();
    assert!(
        extended(&cut(u32::try_from(room).unwrap() + 1), 0).contains("extensions end at 0x200")
    );
    // The length of the end marker is checked as well.
    assert!(extended(&[0, 0, 0, 0, 1, 0, 0, 0], 0).contains("has 16777216 bytes"));
    assert!(extended(&extension(0x0537_be77, &[0; 16]), 0).contains("not encrypted"));
    assert_eq!(extended(&extension(0xe279_2aca, &[b'r'; 15]), 0), "");
    assert!(extended(&extension(0xe279_2aca, &[b'r'; 16]), 0).contains("the limit is 15"));
}

#[test]
fn long_extensions_require_more_of_the_head() {
    let mut image = Qcow2::new(17, vec![Guest::Data(1)]).build().image;
    let length = 100_000_u32;
    image[104..108].copy_from_slice(&[0x12; 4]);
    image[108..112].copy_from_slice(&length.to_be_bytes());
    let short = Qcow2Header::parse(&image[..65_536]).unwrap_err();
    assert!(matches!(short, Error::ShortHeader { needed: 100_112, .. }), "{short}");
    assert!(Qcow2Header::parse(&image).is_ok());
    image[108..112].copy_from_slice(&(length + 40_000).to_be_bytes());
    assert!(
        Qcow2Header::parse(&image[..65_536]).unwrap_err().to_string().contains("extensions end")
    );
}

#[test]
fn bitmaps_that_are_up_to_date_are_validated() {
    let bitmaps = |count: u32, reserved: u32, bytes: u64, offset: u64| {
        let numbers = [count.to_be_bytes(), reserved.to_be_bytes()].concat();
        extension(
            0x2385_2875,
            &[numbers, bytes.to_be_bytes().into(), offset.to_be_bytes().into()].concat(),
        )
    };
    for (extension, sentence) in [
        (bitmaps(1, 0, 24, 512), ""),
        (bitmaps(65_535, 0, 1024 * 65_535, 0), ""),
        (bitmaps(0, 0, 24, 512), "0 bitmaps"),
        (bitmaps(65_536, 0, 24, 512), "65536 bitmaps"),
        (bitmaps(1, 1, 24, 512), "reserved: 0x1"),
        (bitmaps(1, 0, 0, 512), "has 0 bytes"),
        (bitmaps(1, 0, 1024 * 65_535 + 1, 512), "67107841 bytes"),
        (bitmaps(1, 0, 24, 513), "at 0x201"),
    ] {
        let said = extended(&extension, 1);
        assert_eq!(said.is_empty(), sentence.is_empty(), "{said}");
        assert!(said.contains(sentence), "{said}");
        // Without the autoclear bit the bitmaps are out of date, and only the length is checked.
        assert_eq!(extended(&extension, 0), "");
    }
    assert!(extended(&extension(0x2385_2875, &[0; 16]), 0).contains("expected 24"));
}

#[test]
fn tables_that_are_not_read_must_still_be_at_valid_offsets() {
    let put64 =
        |at: usize, value: u64| patched(|b| b[at..at + 8].copy_from_slice(&value.to_be_bytes()));
    let snapshots = |count: u32| patched(|b| b[60..64].copy_from_slice(&count.to_be_bytes()));
    assert!(snapshots(65_536).is_ok());
    assert!(snapshots(65_537).unwrap_err().to_string().contains("the limit is 65536"));
    assert!(put64(64, 1024).is_ok());
    assert!(put64(64, 1025).is_err());
    // The largest file of QEMU ends 1 GiB before 2^63.
    let most = (1_u64 << 63) - (1 << 30);
    for at in [40, 48, 64] {
        assert!(put64(at, most - 1024).is_ok(), "{at}");
        assert!(put64(at, most + 512).is_err(), "{at}");
    }
    assert!(patched(|b| b[95] = 2).unwrap_err().to_string().contains("external data file"));
    // The part of the size that is rounded off needs an entry as well.
    assert!(put64(24, 64 * 512).is_ok());
    assert!(put64(24, 64 * 512 + 1).unwrap_err().to_string().ends_with("needs 2"));
}
