//! Properties of both routes over images whose physical order is random.

use proptest::prelude::*;

use super::Header;
use super::testing::{CLUSTER, Guest, disk, image, one_pass, ranged};
use crate::Error;

fn guest() -> impl Strategy<Value = Vec<Guest>> {
    let cluster = prop_oneof![
        2 => Just(Guest::Hole),
        1 => Just(Guest::ZeroAllocated),
        4 => (1u8..).prop_map(Guest::Data),
    ];
    prop::collection::vec(cluster, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_order_on_any_route_gives_the_disk(
        guest in guest(),
        order in prop::collection::vec(any::<u16>(), 0..320),
        chunk in 1usize..3000,
    ) {
        let image = image(&guest, &order);
        let expected = disk(&guest);
        prop_assert_eq!(&ranged(&image, chunk).unwrap().disk, &expected);
        let passed = one_pass(&image, chunk).unwrap();
        prop_assert_eq!(&passed.disk, &expected);
        prop_assert!(passed.parked.is_empty());
    }

    #[test]
    fn every_prefix_fails_unless_only_unmapped_bytes_were_lost(
        guest in guest(),
        order in prop::collection::vec(any::<u16>(), 0..320),
        cut in any::<prop::sample::Index>(),
    ) {
        let image = image(&guest, &order);
        let cut = cut.index(image.len());
        for route in [one_pass, ranged] {
            if let Ok(sink) = route(&image[..cut], 1000) {
                prop_assert_eq!(&sink.disk, &disk(&guest));
            }
        }
    }

    #[test]
    fn hostile_bytes_end_in_an_answer(
        guest in guest(),
        order in prop::collection::vec(any::<u16>(), 0..100),
        patches in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut image = image(&guest, &order);
        for (at, byte) in patches {
            let at = at.index(image.len());
            // The size decides how much a test would have to allocate.
            if !(24..32).contains(&at) {
                image[at] = byte;
            }
        }
        // Larger clusters mean larger virtual sizes than the array of this test has.
        image[23] = 9;
        drop(one_pass(&image, 700));
        drop(ranged(&image, 700));
    }
}

#[test]
fn metadata_first_needs_no_parking() {
    let guest: Vec<Guest> = (1..=200).map(Guest::Data).collect();
    assert_eq!(one_pass(&image(&guest, &[]), 4096).unwrap().most_parked, 0);
}

#[test]
fn l1_at_the_end_parks_everything_and_still_works() {
    let guest: Vec<Guest> = (1..=200).map(Guest::Data).collect();
    // Units: refcount table, one refcount block, L1 table, …
    let sink = one_pass(&image(&guest, &[0, 0, u16::MAX]), 4096).unwrap();
    assert_eq!(sink.disk, disk(&guest));
    assert!(sink.most_parked >= 200);
}

fn patched(patch: impl FnOnce(&mut Vec<u8>)) -> Result<Header, Error> {
    let mut bytes = image(&[Guest::Data(1)], &[]);
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
    let header = patched(|b| b[24..32].copy_from_slice(&(CLUSTER as u64 - 1).to_be_bytes())).unwrap();
    assert_eq!(header.virtual_size, 0);
}
