//! Images of every layout by both routes, and headers that are refused.
//! `importer/tests/images/formats` compares the same images with QEMU.

use proptest::prelude::*;

use crate::stream::testing::{check_prefix, check_routes, check_survival, ranged};
use crate::{Error, Format, Image};
use testkit::images::vhdx::{
    Block, HEADER_BYTES, HEADERS_AT, ITEMS_AT, METADATA_AT, REGION_TABLE_BYTES, REGION_TABLES_AT,
    Vhdx, guid, seal,
};

const MIB: usize = 1 << 20;

fn open(image: &[u8]) -> Result<Image, Error> {
    Image::open(Format::Vhdx, image)
}

fn block() -> impl Strategy<Value = Block> {
    prop_oneof![
        3 => (1u8..).prop_map(|fill| Block::Present(vec![fill; MIB])),
        // Not present, undefined, zero, unmapped, and unmapped as in drafts of the format.
        2 => prop::sample::select(vec![0u8, 1, 2, 3, 5]).prop_map(Block::Absent),
    ]
}

prop_compose! {
    fn vhdx()(blocks in prop::collection::vec(block(), 1..6))(
        order in Just((0..blocks.len()).collect::<Vec<_>>()).prop_shuffle(),
        blocks in Just(blocks),
        last_sectors in 1u64..=256,
        sector_size in prop::sample::select(vec![512u32, 4096]),
        is_fixed in any::<bool>(),
        table_last in any::<bool>(),
        sequence in prop::sample::select(vec![[1u64, 2], [2, 1], [7, 6]]),
    ) -> Vhdx {
        let size = (blocks.len() - 1) as u64 * MIB as u64 + last_sectors * 4096;
        Vhdx {
            blocks: order.into_iter().map(|index| (index, blocks[index].clone())).collect(),
            sector_size,
            is_fixed,
            table_last,
            sequence,
            ..Vhdx::new(size, MIB)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn any_order_on_any_route_gives_the_disk(vhdx in vhdx(), chunk in 1000usize..3_000_000) {
        check_routes(Format::Vhdx, &vhdx.bytes(), &vhdx.disk(), chunk)?;
    }

    #[test]
    fn every_prefix_fails_unless_only_unmapped_bytes_are_missing(vhdx in vhdx(), cut in any::<prop::sample::Index>()) {
        check_prefix(Format::Vhdx, &vhdx.bytes(), &vhdx.disk(), cut)?;
    }

    #[test]
    fn hostile_bytes_neither_panic_nor_hang(
        vhdx in vhdx(),
        at in prop::sample::select(vec![HEADERS_AT[1], REGION_TABLES_AT[0], METADATA_AT, ITEMS_AT, 3 * MIB]),
        patches in prop::collection::vec((0usize..120, any::<u8>()), 1..8),
    ) {
        let mut image = vhdx.bytes();
        for (skip, byte) in patches {
            image[at + skip] = byte;
        }
        seal(&mut image[HEADERS_AT[1]..][..HEADER_BYTES]);
        seal(&mut image[REGION_TABLES_AT[0]..][..REGION_TABLE_BYTES]);
        check_survival(Format::Vhdx, &image);
    }
}

/// The disk has one and a half chunks. With 512-byte sectors a chunk is 4096 blocks of 1 MiB, and
/// the entry of its sector bitmap comes after them.
#[test]
fn the_entry_of_a_sector_bitmap_maps_nothing() {
    let vhdx = Vhdx {
        blocks: [4095, 0, 4096, 4097]
            .map(|index| (index, Block::Present(vec![u8::try_from(index % 251).unwrap(); 600])))
            .to_vec(),
        ..Vhdx::new(4098 << 20, MIB)
    };
    let mut image = vhdx.bytes();
    let bitmap_entry = vhdx.table_at() + 4096 * 8;
    image[bitmap_entry..bitmap_entry + 8].copy_from_slice(&(6u64 | 3 << 20).to_le_bytes());
    assert!(ranged(Format::Vhdx, &image, 5 * MIB).unwrap().disk == vhdx.disk());
}

#[test]
fn a_head_that_ends_before_the_metadata_requests_more() {
    let image = Vhdx::new(5 << 20, MIB).bytes();
    let needed = |head: usize| match open(&image[..head]) {
        Err(Error::ShortHeader { needed, .. }) => needed,
        other => panic!("{:?}", other.map(|image| image.head_facts())),
    };
    assert_eq!(needed(100), (132 << 10));
    assert_eq!(needed(132 << 10), 256 << 10);
    assert_eq!(needed(320 << 10), METADATA_AT as u64 + (64 << 10));
    assert_eq!(needed(METADATA_AT + (64 << 10)), ITEMS_AT as u64 + 8);
    assert!(open(&image[..ITEMS_AT + 40]).is_ok());
}

#[test]
fn size_and_features_are_read_from_the_metadata() {
    let facts = |vhdx: &Vhdx| open(&vhdx.bytes()).unwrap().head_facts();
    let mut vhdx = Vhdx::new((5 << 20) + 4096, 32 * MIB);
    let found = facts(&vhdx);
    assert_eq!((found.virtual_size, found.cluster_size), ((5 << 20) + 4096, Some(32 << 20)));
    assert_eq!(found.features, ["dynamic"]);
    (vhdx.is_fixed, vhdx.sector_size) = (true, 4096);
    assert_eq!(facts(&vhdx).features, ["fixed", "4096-byte sectors"]);
}

/// Returns the message that refuses a small image after `change` has altered its description and
/// `patch` its bytes.
fn refusal(change: impl FnOnce(&mut Vhdx), patch: impl FnOnce(&mut [u8])) -> String {
    let mut vhdx = Vhdx::new(5 << 20, MIB);
    vhdx.blocks = vec![(0, Block::Present(vec![1; 10]))];
    change(&mut vhdx);
    let mut image = vhdx.bytes();
    patch(&mut image);
    for at in HEADERS_AT {
        seal(&mut image[at..][..HEADER_BYTES]);
    }
    for at in REGION_TABLES_AT {
        seal(&mut image[at..][..REGION_TABLE_BYTES]);
    }
    let whole = open(&image).and_then(|_| ranged(Format::Vhdx, &image, MIB).map(|_| ()));
    whole.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn the_newer_header_counts_and_its_log_must_be_empty() {
    for (sequence, log_guid, is_refused) in [
        ([8, 9], [0, 1], true),
        ([8, 9], [1, 0], false),
        ([9, 8], [1, 0], true),
        ([9, 8], [0, 1], false),
    ] {
        let refused = refusal(|vhdx| (vhdx.sequence, vhdx.log_guid) = (sequence, log_guid), |_| {});
        assert_eq!(refused.contains("qemu-img check -r all"), is_refused, "{refused}");
    }
    let refused = refusal(|vhdx| (vhdx.sequence, vhdx.log_guid) = ([8, 8], [0, 1]), |_| {});
    assert!(refused.contains("same sequence number 8"), "{refused}");
    assert_eq!(refusal(|vhdx| vhdx.sequence = [8, 8], |_| {}), "");
}

#[test]
fn one_intact_header_and_the_first_region_table_are_enough() {
    for (broken, reason) in [
        (&[HEADERS_AT[0], REGION_TABLES_AT[1]][..], ""),
        (&[HEADERS_AT[1], REGION_TABLES_AT[1]], ""),
        (&HEADERS_AT, "no intact header"),
        // QEMU does not read the second region table.
        (&REGION_TABLES_AT[..1], "its first region table is damaged"),
    ] {
        let mut image = Vhdx::new(5 << 20, MIB).bytes();
        broken.iter().for_each(|at| image[at + 40] ^= 1);
        let refused = open(&image).err().map(|error| error.to_string());
        let refused = refused.unwrap_or_default();
        assert_eq!(refused.is_empty(), reason.is_empty(), "{broken:?}: {refused}");
        assert!(refused.contains(reason), "{broken:?}: {refused}");
    }
}

#[test]
fn a_difference_is_refused_with_the_name_of_its_parent() {
    let refused = refusal(|vhdx| vhdx.parent = Some("..\\bäse.vhdx".into()), |_| {});
    assert!(refused.contains("\"..\\bäse.vhdx\""), "{refused}");
    let refused = refusal(|_| {}, |image| image[ITEMS_AT + 4] = 2);
    assert!(refused.contains("differences to another"), "{refused}");
}

#[test]
fn unknown_regions_and_items_are_refused_if_they_are_required() {
    let unknown = guid("00112233-4455-6677-8899-aabbccddeeff");
    for (is_required, reason) in [(false, ""), (true, "33221100554477668899aabbccddeeff")] {
        let refused =
            refusal(|vhdx| vhdx.regions = vec![(unknown, 64 * MIB, MIB, is_required)], |_| {});
        assert_eq!((refused.is_empty(), true), (!is_required, refused.contains(reason)));
        let refused = refusal(|vhdx| vhdx.items = vec![(unknown, is_required)], |_| {});
        assert_eq!((refused.is_empty(), true), (!is_required, refused.contains(reason)));
    }
}

#[test]
fn contradictory_headers_are_refused() {
    let regions = REGION_TABLES_AT[0] + 16;
    let (table, metadata, items) = (3 * MIB, METADATA_AT, ITEMS_AT);
    for (at, bytes, reason) in [
        (0, &b"VHDX"[..], "no file identifier"),
        (HEADERS_AT[1] + 64, &[1], "log version 1"),
        (HEADERS_AT[1] + 72, &[0; 8], "the log begins at 0x0"),
        (regions - 8, &[0, 8], "2048 entries"),
        (regions - 8, &[0], "no region with a block allocation table"),
        (regions - 8, &[1], "no metadata region"),
        (regions + 17, &[2], "a region of 1048576 bytes at 0x300200"),
        (regions + 18, &[0x20], "at 0x200000 and 0x200000 overlap"),
        (regions + 24, &[32, 0, 0], "room for 4 entries, the disk needs 5"),
        (metadata, &[0], "no metadata at 0x200000"),
        (metadata + 10, &[0xff, 0xff], "65535 items"),
        (metadata + 10, &[4], "no physical sector size"),
        (metadata + 32 + 18, &[0], "outside the metadata region"),
        (metadata + 32 + 18, &[0x20], "outside the metadata region"),
        (metadata + 32 + 20, &[4], "file parameters is shorter than 8"),
        (
            metadata + 32 + 32,
            &[
                0x37, 0x67, 0xa1, 0xca, 0x36, 0xfa, 0x43, 0x4d, 0xb3, 0xb6, 0x33, 0xf0, 0xaa, 0x44,
                0xe7, 0x6b,
            ],
            "an item twice",
        ),
        (items, &[0, 0, 0x30, 0], "block size 3145728"),
        (items, &[0, 0, 0, 0x20], "block size 536870912"),
        (items + 8, &[0; 8], "the disk needs 1048575"),
        (items + 8, &[0, 0, 0, 0, 1, 0x40], "64 TiB"),
        (items + 33, &[4], "logical sector size 1024"),
        (table, &[6, 0, 0x10], "overlaps the region at 0x100000"),
        (table, &[6, 0, 0x30], "overlaps the region at 0x300000"),
        (table, &[6, 0, 0], "a block cannot be at 0x0"),
        (
            table,
            &[6, 0, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff],
            "a block cannot be at 0xfffffffffff00000",
        ),
        (table, &[6, 0, 0xf0], "truncated"),
        (table, &[7], "partially present"),
        (table, &[4], "unknown state 4"),
    ] {
        let refused = refusal(
            |_| {},
            |image| {
                image[at..at + bytes.len()].copy_from_slice(bytes);
                let [first, second] = REGION_TABLES_AT;
                image.copy_within(first..first + REGION_TABLE_BYTES, second);
            },
        );
        assert!(refused.contains(reason), "{refused:?} should say {reason:?}");
    }
}
