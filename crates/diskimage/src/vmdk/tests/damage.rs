//! Images that contradict themselves must be refused.

use testkit::images::vmdk::{Grain, Tables, Vmdk, descriptor, marker};

use crate::stream::testing::{self, Array};
use crate::{Error, Format, Image};

/// Bytes that a header and a descriptor take together.
const OVERHEAD: usize = 24 * 512;

/// Returns an image with two tables of grains, of which 0, 2 and 17 are stored.
fn vmdk(tables: Tables, compressed: bool) -> Vmdk {
    let mut grains = vec![Grain::Hole; 18];
    for (number, byte) in [(0, 10), (2, 20), (17, 30)] {
        grains[number] = Grain::Data(byte);
    }
    Vmdk::small(tables, compressed, grains)
}

fn stream() -> Vec<u8> {
    vmdk(Tables::Footer, true).build()
}

/// Offsets of the markers in [`stream`]: three grains with a table behind the second and the
/// third, then directory, footer and end.
const GRAINS: [usize; 3] = [OVERHEAD, OVERHEAD + 512, OVERHEAD + 2048];
const TABLE_1: usize = OVERHEAD + 1024;
const TABLE_2: usize = OVERHEAD + 2560;
const DIRECTORY: usize = OVERHEAD + 3584;
const FOOTER: usize = OVERHEAD + 4608;
const END: usize = OVERHEAD + 5632;

fn one_pass(image: &[u8], chunk: usize) -> Result<Array, Error> {
    testing::one_pass(Format::Vmdk, image, chunk)
}

fn ranged(image: &[u8], chunk: usize) -> Result<Array, Error> {
    testing::ranged(Format::Vmdk, image, chunk)
}

fn put32(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(image: &mut [u8], at: usize, value: u64) {
    image[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn refusal(result: Result<Array, Error>) -> String {
    result.err().map_or_else(|| "accepted".into(), |error| error.to_string())
}

#[test]
fn the_offsets_in_this_file_are_right() {
    let image = stream();
    let kind = |at: usize| image[at..at + 16].to_vec();
    for (at, first_sector) in GRAINS.into_iter().zip([0u64, 16, 136]) {
        assert_eq!(kind(at)[..8], first_sector.to_le_bytes());
        assert_ne!(kind(at)[8..12], [0; 4]);
    }
    for (at, sectors, number) in
        [(TABLE_1, 1, 1), (TABLE_2, 1, 1), (DIRECTORY, 1, 2), (FOOTER, 1, 3), (END, 0, 0)]
    {
        assert_eq!(kind(at), marker(sectors, number)[..16]);
    }
    assert_eq!(image.len(), END + 512);
}

type Damage = fn(&mut Vec<u8>);

/// The tables, which QEMU follows, and the markers disagree about the disk.
#[test]
fn a_stream_whose_tables_contradict_its_markers_is_refused() {
    let cases: [(&str, Damage); 17] = [
        ("two markers refer to the same grain", |image| put64(image, GRAINS[1], 0)),
        ("contradicts the markers", |image| put64(image, GRAINS[1], 8)),
        ("not the start of a grain", |image| put64(image, GRAINS[1], 17)),
        ("not the start of a grain", |image| put64(image, GRAINS[1], 144)),
        ("not the start of a grain", |image| put64(image, GRAINS[1], u64::MAX)),
        ("the limit is 8180", |image| put32(image, GRAINS[1] + 8, 8181)),
        ("contradicts the markers", |image| put32(image, TABLE_1 + 512, 0)),
        ("contradicts the markers", |image| put32(image, TABLE_1 + 512 + 60, 40)),
        ("contradicts the markers", |image| put32(image, DIRECTORY + 512, 0)),
        ("contradicts the markers", |image| {
            let (first, second) = image[DIRECTORY + 512..].split_at_mut(4);
            first.swap_with_slice(&mut second[..4]);
        }),
        // The marker of an unknown type is skipped, and its table with it.
        ("contradicts the markers", |image| put32(image, TABLE_1 + 12, 4)),
        ("sectors for a table", |image| put64(image, TABLE_1, u64::MAX)),
        ("ends without a footer", |image| put32(image, FOOTER + 12, 0)),
        ("is not in the stream", |image| put64(image, FOOTER + 512 + 56, 7)),
        ("does not say where", |image| put64(image, FOOTER + 512 + 56, u64::MAX)),
        ("the footer contradicts the header", |image| put64(image, FOOTER + 512 + 12, 100)),
        ("1 sectors", |image| put64(image, END, 1)),
    ];
    for (reason, damage) in cases {
        let mut image = stream();
        damage(&mut image);
        let said = refusal(one_pass(&image, 100));
        assert!(said.contains(reason), "{reason}: {said}");
    }
}

#[test]
fn a_stream_must_end_with_its_end_marker() {
    let mut longer = stream();
    longer.push(0);
    assert!(refusal(one_pass(&longer, 100)).contains("1 bytes follow the end of the stream"));
    longer.resize(END + 1024, 0);
    assert!(refusal(ranged(&longer, 100)).contains("does not end with a footer"));

    let mut twice = stream();
    let tail = twice[FOOTER..].to_vec();
    twice.extend(tail);
    assert!(refusal(one_pass(&twice, 100)).contains("1536 bytes follow"));

    let mut after_footer = stream();
    after_footer.splice(END..END, marker(1, 1));
    assert!(refusal(one_pass(&after_footer, 100)).contains("follows the footer"));
}

#[test]
fn a_grain_behind_its_table_is_refused() {
    let mut image = stream();
    // Grain 17 claims to be grain 1, whose table came before.
    put64(&mut image, GRAINS[2], 8);
    assert!(refusal(one_pass(&image, 100)).contains("follows the grain table"));
}

#[test]
fn a_damaged_footer_is_refused_on_the_ranged_route() {
    for damage in [FOOTER + 12, FOOTER + 8, END + 12, END, FOOTER + 512] {
        let mut image = stream();
        image[damage] ^= 0x40;
        assert_ne!(refusal(ranged(&image, 100)), "accepted", "{damage:#x}");
    }
    let mut image = stream();
    put64(&mut image, FOOTER + 512 + 20, 16);
    assert!(refusal(ranged(&image, 100)).contains("the footer contradicts the header"));
    assert!(refusal(ranged(&image[..END + 100], 100)).contains("truncated: the footer"));
    assert!(refusal(ranged(&image[..1000], 100)).contains("needs"));
}

/// QEMU does not detect a table that refers to another grain.
#[test]
fn a_grain_with_the_marker_of_another_is_refused() {
    for tables in [Tables::First, Tables::Last, Tables::Footer] {
        let mut image = vmdk(tables, true).build();
        let at = (OVERHEAD..image.len())
            .step_by(512)
            .find(|at| image[*at..*at + 8] == 136u64.to_le_bytes())
            .unwrap();
        put64(&mut image, at, 8);
        assert!(
            refusal(ranged(&image, 100)).contains("its marker states that it belongs to sector 8")
        );
        put64(&mut image, at, 136);
        put32(&mut image, at + 8, 5000);
        let said = refusal(ranged(&image, 100));
        assert!(said.contains("its marker states 5000 bytes"), "{said}");
    }
}

/// Upstream's tests expect QEMU's message for such an image (`invalid-qcow-large-memory.img`).
#[test]
fn tables_too_big_for_qemu_are_refused_with_its_message() {
    let opened = |capacity: u64, grain: u64| {
        let mut image = vmdk(Tables::First, false).build();
        put64(&mut image, 12, capacity);
        put64(&mut image, 20, grain);
        // Grain tables of 512 entries.
        put32(&mut image, 44, 512);
        Image::open(Format::Vmdk, &image).map(|image| image.head_facts())
    };
    for grain in [128, 3456] {
        let most = 512 * grain * (32 << 20);
        assert!(refusal_of(opened(most + 1, grain)).contains("L1 size too big: 33554433 entries"));
        // The largest that QEMU accepts, which is larger than our limit.
        assert!(refusal_of(opened(most, grain)).contains("33554432 entries, the limit is 2097152"));
    }
    assert!(refusal_of(opened(1 << 20, 3456)).contains("not a power of two"));
}

fn refusal_of<T>(result: Result<T, Error>) -> String {
    result.err().map_or_else(String::new, |error| error.to_string())
}

#[test]
fn header_fields_are_accepted_up_to_their_limits() {
    let patched = |at: usize, bytes: &[u8]| {
        let mut image = vmdk(Tables::First, false).build();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        Image::open(Format::Vmdk, &image).map(|image| image.head_facts())
    };
    for (at, good, bad) in [
        (4, 3u64, 4u64),
        (4, 1, 0),
        (44, 512, 513),
        (44, 1, 0),
        // Must be a power of two.
        (20, 0x20_0000, 0x40_0000),
        (20, 1, 0),
        (20, 16, 24),
        // 2 Mi grain tables of 16 grains of 8 sectors.
        (12, 128 << 21, (128 << 21) + 1),
        (12, 1, 0),
        (28, 1, 2),
        (36, 500, 521),
        (77, 0, 2),
    ] {
        let width = if [4, 44].contains(&at) {
            4
        } else if at == 77 {
            2
        } else {
            8
        };
        let padded = |value: u64| {
            let mut image = value.to_le_bytes().to_vec();
            image.truncate(width);
            patched(at, &image)
        };
        if at != 36 {
            assert!(padded(good).is_ok(), "{at}: {good}");
        } else {
            // More than the image has, but not more than the limit.
            assert!(matches!(padded(good), Err(Error::ShortHeader { needed: 256_512, .. })));
        }
        assert!(!matches!(padded(bad), Ok(_) | Err(Error::ShortHeader { .. })), "{at}: {bad}");
    }
    for at in [12, 28, 36, 56, 64] {
        let refused = patched(at, &(u64::MAX - 1).to_le_bytes());
        assert!(matches!(refused, Err(Error::Header { .. })), "{at}: {refused:?}");
    }
}

#[test]
fn large_grains_are_refused_in_compressed_images() {
    let mut image = vmdk(Tables::First, true).build();
    put64(&mut image, 20, 4096);
    assert!(Image::open(Format::Vmdk, &image).is_ok());
    put64(&mut image, 20, 8192);
    let refused = Image::open(Format::Vmdk, &image).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
}

#[test]
fn an_extent_without_a_descriptor_is_refused_as_part_of_a_disk() {
    let mut image = vmdk(Tables::First, false).build();
    put64(&mut image, 36, 0);
    let refused = Image::open(Format::Vmdk, &image).map(drop).unwrap_err();
    assert!(refused.to_string().contains("only one of the files"), "{refused}");
}

#[test]
fn data_in_other_files_is_refused_with_their_names() {
    let mut image = vmdk(Tables::First, false).build();
    let text = descriptor(
        "monolithicSparse",
        &["RW 144 SPARSE \"disk.vmdk\"", "RW 8 FLAT \"/etc/passwd\" 0"],
    );
    image[512..21 * 512].fill(0);
    image[512..512 + text.len()].copy_from_slice(text.as_bytes());
    let refused = Image::open(Format::Vmdk, &image).map(drop);
    assert_eq!(refused, Err(Error::ExternalFile { what: "an extent", name: "/etc/passwd".into() }));
}

/// Two entries for the same table or grain, which no program writes.
#[test]
fn shared_tables_are_refused() {
    let mut image = vmdk(Tables::Last, false).build();
    let directory = image.len() - 512;
    let first = image[directory..directory + 4].to_vec();
    image[directory + 4..directory + 8].copy_from_slice(&first);
    for route in [one_pass, ranged] {
        assert!(refusal(route(&image, 100)).contains("two entries share a table"));
    }
}

/// Without its flag in the header, an entry 1 is a sector number like any other.
#[test]
fn entries_mean_zeros_only_with_their_flag() {
    let mut grains = vec![Grain::Zeroed; 3];
    grains[1] = Grain::Data(7);
    let vmdk = Vmdk::small(Tables::First, false, grains);
    let mut image = vmdk.build();
    assert!(ranged(&image, 100).unwrap().disk == vmdk.disk());
    image[8] &= !4;
    let read = ranged(&image, 100).unwrap().disk;
    assert!(read[..4096] == image[512..512 + 4096]);
}
