//! Dynamic images by both routes, and headers that are refused. `importer/tests/images/formats`
//! compares the same images with QEMU.

use proptest::prelude::*;

use super::{fixed_size, is_fixed};
use crate::stream::testing::{check_routes, check_survival, one_pass, ranged};
use crate::{Error, Format, Image};
use testkit::images::vhd::{
    Dynamic, FOOTER_CHECKSUM_AT, Footer, HEADER_CHECKSUM_AT, Table, fixed, geometry, seal,
};

/// Offsets of the parts of a [`Dynamic`] image.
const HEADER: std::ops::Range<usize> = 512..1536;
const TABLE_AT: usize = 1536;

fn open(image: &[u8]) -> Result<Image, Error> {
    Image::open(Format::Vhd, image)
}

fn size_of(image: &[u8]) -> u64 {
    open(image).unwrap().head_facts().virtual_size
}

/// Some or all blocks of the disk, each of them once and in any order.
fn blocks(count: usize, block_size: usize) -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    let all: Vec<usize> = (0..count).collect();
    let chosen = prop::sample::subsequence(all, 0..=count).prop_shuffle();
    (chosen, 1u8..100).prop_map(move |(order, seed)| {
        let fill = |index: usize| u8::try_from(index % 150).unwrap() + seed;
        let whole = |index: usize| vec![fill(index); block_size];
        order.into_iter().map(|index| (index, whole(index))).collect()
    })
}

prop_compose! {
    fn dynamic()(
        block_size in prop::sample::select(vec![4096usize, 8192, 65_536]),
        count in 1usize..12,
    )(
        blocks in blocks(count, block_size),
        block_size in Just(block_size),
        size in (count - 1) * block_size / 512 + 1..=count * block_size / 512,
        bitmap in prop::sample::select(vec![0u8, 0xff, 0x5a]),
        last in any::<bool>(),
        spare_entries in 0usize..5,
    ) -> Dynamic {
        Dynamic {
            blocks,
            bitmap,
            table: if last { Table::Last } else { Table::First },
            spare_entries,
            ..Dynamic::new(size as u64 * 512, block_size)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_order_on_any_route_gives_the_disk(dynamic in dynamic(), chunk in 1usize..100_000) {
        check_routes(Format::Vhd, &dynamic.bytes(), &dynamic.disk(), chunk)?;
    }

    #[test]
    fn every_prefix_fails_unless_only_the_last_footer_is_missing(
        dynamic in dynamic(),
        cut in any::<prop::sample::Index>(),
    ) {
        let image = dynamic.bytes();
        let cut = cut.index(image.len());
        for route in [one_pass, ranged] {
            let result = route(Format::Vhd, &image[..cut], 10_000);
            prop_assert_eq!(result.is_ok(), cut >= image.len() - 512);
        }
    }

    #[test]
    fn hostile_bytes_neither_panic_nor_hang(
        dynamic in dynamic(),
        patches in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut image = dynamic.bytes();
        let end = image.len().min(3000);
        for (at, byte) in patches {
            image[at.index(end)] = byte;
        }
        seal(&mut image[..512], FOOTER_CHECKSUM_AT);
        seal(&mut image[HEADER], HEADER_CHECKSUM_AT);
        check_survival(Format::Vhd, &image);
    }

    #[test]
    fn only_a_footer_of_the_right_size_makes_a_fixed_disk(sectors in 0u64..50, other in 0u64..50) {
        let disk = vec![7; usize::try_from(sectors).unwrap() * 512];
        let image = fixed(&disk, &Footer::fixed(other * 512));
        let last = &image[disk.len()..];
        prop_assert_eq!(is_fixed(last, image.len() as u64), sectors == other);
        prop_assert_eq!(fixed_size(last, image.len() as u64).ok(), (other <= sectors).then_some(other * 512));
    }
}

#[test]
fn an_image_with_its_table_before_the_blocks_needs_no_parking() {
    let dynamic = Dynamic {
        blocks: (0..40).rev().map(|index| (index, vec![9; 4096])).collect(),
        ..Dynamic::new(40 * 4096, 4096)
    };
    let array = one_pass(Format::Vhd, &dynamic.bytes(), 3000).unwrap();
    assert_eq!((array.most_parked, array.disk), (0, dynamic.disk()));
}

/// Disks of Virtual PC and of QEMU have the size of their geometry; see `disk_sectors` in the
/// footer module.
#[test]
fn the_creator_decides_whether_size_or_geometry_counts() {
    let image = |creator: &[u8; 4], geometry| {
        let mut dynamic = Dynamic::new(10 << 20, 2 << 20);
        dynamic.footer.creator = *creator;
        dynamic.footer.geometry = geometry;
        dynamic.bytes()
    };
    let (small, largest) = ((100, 4, 17), (65_535, 16, 255));
    for creator in [b"vpc ", b"qemu"] {
        assert_eq!(size_of(&image(creator, small)), 100 * 4 * 17 * 512);
        assert_eq!(size_of(&image(creator, largest)), 10 << 20);
    }
    for creator in
        [b"win ", b"qem2", b"d2v ", b"tap\0", b"CTXS", b"wa\0\0", b"vs  ", b"vbox", b"\0\0\0\0"]
    {
        assert_eq!(size_of(&image(creator, small)), 10 << 20);
    }
}

#[test]
fn the_geometry_is_computed_as_in_the_specification() {
    assert_eq!(geometry(10 << 20), (301, 4, 17));
    assert_eq!(geometry(1 << 30), (2080, 16, 63));
    assert_eq!(geometry(127 << 30), (65_278, 16, 255));
}

#[test]
fn a_disk_may_have_2040_gib_and_no_sector_more() {
    let footer = |size| Footer::fixed(size).bytes();
    let most = 0xff00_0000 * 512;
    assert_eq!(fixed_size(&footer(most), most + 512), Ok(most));
    let error = fixed_size(&footer(most + 512), most + 1024).unwrap_err();
    assert!(error.to_string().contains("2040 GiB"), "{error}");
}

#[test]
fn a_difference_is_refused_with_the_name_of_its_parent() {
    let mut dynamic = Dynamic::new(1 << 20, 4096);
    dynamic.footer.disk_type = 4;
    let parent = |dynamic: &Dynamic| open(&dynamic.bytes()).err();
    for name in ["", "C:\\disks\\bäse.vhd"] {
        dynamic.parent = name.into();
        assert_eq!(
            parent(&dynamic),
            Some(Error::Parent { format: Format::Vhd, name: name.into() })
        );
    }
}

/// Returns the message that refuses a small image after `patch`. The checksums are recalculated if
/// `is_sealed`.
fn refusal(is_sealed: bool, patch: impl FnOnce(&mut [u8])) -> String {
    let mut image = Dynamic::new(1 << 20, 4096).bytes();
    patch(&mut image);
    if is_sealed {
        seal(&mut image[..512], FOOTER_CHECKSUM_AT);
        seal(&mut image[HEADER], HEADER_CHECKSUM_AT);
    }
    open(&image).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn contradictory_headers_are_refused() {
    let header = HEADER.start;
    let put = |at: usize, bytes: &'static [u8]| {
        move |image: &mut [u8]| image[at..at + bytes.len()].copy_from_slice(bytes)
    };
    assert_eq!(refusal(true, |_| {}), "");
    for (is_sealed, at, bytes, reason) in [
        (false, 100, &[1][..], "the footer's checksum is"),
        (false, header + 700, &[1], "the dynamic disk header's checksum is"),
        (true, 60, &[0, 0, 0, 2], "only dynamic disks do"),
        (true, 60, &[0, 0, 0, 5], "disk type 5"),
        (true, 16, &[0xff; 8], "the header needs"),
        (true, 16, &[0, 0, 0, 0, 0, 0, 4, 0], "no dynamic disk header at 0x400"),
        (true, header + 32, &[0, 0, 8, 0], "block size 2048"),
        (true, header + 32, &[0, 0x30, 0, 0], "block size 3145728"),
        (true, header + 28, &[0, 0, 0, 255], "255 entries, the disk 256 blocks"),
        (true, header + 28, &[0x20, 0, 0, 0], "536870912 entries"),
        (true, header + 16, &[0xff; 8], "cannot be at 0xffffffffffffffff"),
    ] {
        let refused = refusal(is_sealed, put(at, bytes));
        assert!(refused.contains(reason), "{refused:?} should say {reason:?}");
    }
}

/// As in QEMU, a block must be complete even if the disk needs none of its sectors.
#[test]
fn a_spare_entry_that_points_behind_the_image_is_refused() {
    let dynamic = Dynamic { spare_entries: 1, ..Dynamic::new(4096, 4096) };
    let mut image = dynamic.bytes();
    let entry = TABLE_AT + 4;
    image[entry..entry + 4].copy_from_slice(&9u32.to_be_bytes());
    for route in [one_pass, ranged] {
        assert!(matches!(route(Format::Vhd, &image, 512), Err(Error::Truncated { .. })));
    }
}
