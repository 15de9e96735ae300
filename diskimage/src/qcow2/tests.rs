//! What the header alone tells. Both routes over whole images: `references`.

use testkit::images::qcow2::{Guest, Qcow2};

use super::Header;
use crate::Error;

mod references;

fn patched(patch: impl FnOnce(&mut Vec<u8>)) -> Result<Header, Error> {
    let mut bytes = Qcow2::new(9, vec![Guest::Data(1)]).build().image;
    patch(&mut bytes);
    Header::parse(&bytes)
}

#[test]
fn limits_of_the_header_have_both_sides() {
    assert!(patched(|_| {}).is_ok());
    let put32 = |at: usize, value: u32| patched(|b| b[at..at + 4].copy_from_slice(&value.to_be_bytes()));
    for bits in [8, 22, u32::MAX] {
        assert!(
            matches!(put32(20, bits), Err(Error::Header { .. })),
            "cluster_bits {bits}"
        );
    }
    assert!(put32(4, 4).is_err());
    assert!(put32(96, 6).is_ok());
    assert!(put32(96, 7).is_err());
    assert!(put32(100, 103).is_err());
    assert!(put32(100, 513).is_err());
    assert_eq!(put32(32, 1), Err(Error::Encrypted("AES")));
    assert_eq!(put32(32, 2), Err(Error::Encrypted("LUKS")));
    assert!(put32(36, 4 << 20).is_ok());
    assert!(
        put32(36, (4 << 20) + 1)
            .unwrap_err()
            .to_string()
            .contains("L1 size too big")
    );
    assert!(matches!(put32(36, 0), Err(Error::L1TooSmall { needed: 1, .. })));
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
    assert_eq!(
        patched(|b| b[72] = 0x80),
        Err(Error::UnknownFeatures("bit 63".into()))
    );
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
fn dirty_and_corrupt_images_are_read_as_qemu_does() {
    let header = patched(|b| b[79] = 3).unwrap();
    assert!(header.dirty && header.corrupt);
}

#[test]
fn the_size_is_rounded_down_to_sectors() {
    let header = patched(|b| b[24..32].copy_from_slice(&511u64.to_be_bytes())).unwrap();
    assert_eq!(header.virtual_size, 0);
}
