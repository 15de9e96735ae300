use super::FIRST_UNALLOCATED;
use super::*;
use crate::Image;

/// Creates the header and the map of a dynamic image with 4 blocks. The map is at 512, the data at
/// 1024.
fn image() -> Vec<u8> {
    let mut image = vec![0; 1024];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    for (at, value) in [
        (0x40, 0xbeda_107f_u32),
        (0x44, 0x0001_0001),
        (0x48, 400),
        (0x4c, 1),
        (0x154, 512),
        (0x158, 1024),
        (0x168, 512),
        (0x178, 1 << 20),
        (0x180, 4),
    ] {
        put(at, &value.to_le_bytes());
    }
    put(0x170, &(4_u64 << 20).to_le_bytes());
    image
}

/// Returns the image with these bytes at the offset `at`.
fn patched(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut image = image();
    image[at..at + bytes.len()].copy_from_slice(bytes);
    image
}

fn opened(image: &[u8]) -> Result<crate::HeadFacts, Error> {
    Image::open(Format::Vdi, image).map(|image| image.head_facts())
}

fn refusal(at: usize, bytes: &[u8]) -> String {
    opened(&patched(at, bytes)).unwrap_err().to_string()
}

#[test]
fn size_and_kind_are_read_from_the_header() {
    let facts = opened(&image()).unwrap();
    assert_eq!((facts.virtual_size, facts.features), (4 << 20, vec!["dynamic".into()]));
    assert_eq!((facts.cluster_size, facts.parking_unit), (Some(1 << 20), None));
    assert_eq!(opened(&patched(0x4c, &[2])).unwrap().features, ["static"]);
    // Blocks that lie before the map are parked.
    assert_eq!(opened(&patched(0x158, &[0, 2])).unwrap().parking_unit, Some(1 << 20));
}

#[test]
fn an_odd_size_is_rounded_up_as_in_qemu() {
    let size = ((4_u64 << 20) - 700).to_le_bytes();
    assert_eq!(opened(&patched(0x170, &size)).unwrap().virtual_size, (4 << 20) - 512);
}

#[test]
fn sizes_are_accepted_up_to_their_limits() {
    assert!(refusal(0x170, &((4_u64 << 20) + 1).to_le_bytes()).contains("has room for 4194304"));
    let size = 0x1fff_ff80_u64 << 20;
    let mut image = patched(0x170, &size.to_le_bytes());
    image[0x180..0x184].copy_from_slice(&0x1fff_ff80_u32.to_le_bytes());
    assert_eq!(opened(&image).unwrap().virtual_size, size);
    image[0x170..0x178].copy_from_slice(&(size + 1).to_le_bytes());
    assert!(opened(&image).unwrap_err().to_string().contains("the limit is"));
    assert!(refusal(0x180, &0x1fff_ff81_u32.to_le_bytes()).contains("the limit is"));
    assert!(refusal(0x170, &u64::MAX.to_le_bytes()).contains("the limit is"));
}

#[test]
fn unsupported_images_are_refused_with_the_reason() {
    for (at, bytes, sentence) in [
        (0x44, &[0, 0, 1, 0][..], "version 1.0 is not supported"),
        (0x44, &[1, 0, 0, 0], "version 0.1 is not supported"),
        (0x4c, &[5], "image type 5"),
        (0x154, &[1], "the block map is at 0x201"),
        (0x158, &[0, 1], "the first block is at 0x100"),
        (0x168, &[0, 16], "sectors of 4096 bytes"),
        (0x178, &[0, 0, 32], "block size 2097152"),
        (0x17c, &[0, 2], "512 bytes before each block"),
    ] {
        let refusal = refusal(at, bytes);
        assert!(refusal.contains(sentence), "{refusal}");
    }
}

#[test]
fn an_image_with_a_parent_is_refused_with_its_name() {
    let uuid: Vec<u8> = (0..16).collect();
    let link = refusal(0x1a8, &uuid);
    assert!(link.contains("03020100-0504-0706-0809-0a0b0c0d0e0f"), "{link}");
    assert!(matches!(opened(&patched(0x1b8, &uuid)), Err(Error::Parent { .. })));
    assert!(matches!(opened(&patched(0x4c, &[3])), Err(Error::Parent { .. })));
    assert!(matches!(opened(&patched(0x4c, &[4])), Err(Error::Parent { .. })));
}

#[test]
fn a_short_header_is_refused_with_both_lengths() {
    let short = opened(&image()[..0x1c7]);
    let (format, needed, available) = (Format::Vdi, 0x1c8, 0x1c7);
    assert_eq!(short, Err(Error::ShortHeader { format, needed, available }));
    assert!(opened(&image()[..0x1c8]).is_ok());
}

#[test]
fn map_entries_become_runs_within_the_disk() {
    let size = ((4_u64 << 20) - 512).to_le_bytes();
    let mut vdi = VdiLayout::new(VdiHeader::parse(&patched(0x170, &size)).unwrap());
    let tables =
        vdi.initial_ranges(AccessOrder::OnePass).unwrap().into_sorted(Format::Vdi).unwrap();
    assert_eq!(tables.len(), 1);
    let entries = [5, 6, FIRST_UNALLOCATED, 0, 7].map(u32::to_le_bytes).concat();
    let table = tables[0].loaded_table(&entries).unwrap();
    let mut batch = RangeBatch::default();
    vdi.parse_table(table, &mut batch).unwrap();
    let wants = batch.into_sorted(Format::Vdi).unwrap();
    let mib = 1_u64 << 20;
    let found: Vec<_> = wants
        .iter()
        .map(|want| (want.host.0, u64::from(want.length), want.guest_offset().0))
        .collect();
    assert_eq!(found, [(1024, mib - 512, 3 * mib), (1024 + 5 * mib, 2 * mib, 0)]);
}

#[test]
fn a_large_map_is_read_in_parts() {
    let mut image = patched(0x170, &((1_u64 << 40) + 512).to_le_bytes());
    image[0x180..0x184].copy_from_slice(&0x0020_0000_u32.to_le_bytes());
    let mut vdi = VdiLayout::new(VdiHeader::parse(&image).unwrap());
    let tables =
        vdi.initial_ranges(AccessOrder::OnePass).unwrap().into_sorted(Format::Vdi).unwrap();
    let found: Vec<_> = tables
        .iter()
        .map(|want| (want.host.0, want.length, want.loaded_table(&[]).unwrap().note))
        .collect();
    let part = 1_u32 << 20;
    let mut expected: Vec<_> = (0..4).map(|n| (512 + (n << 20), part, n << 18)).collect();
    expected.push((512 + (4 << 20), 4, 1 << 20));
    assert_eq!(found, expected);
}
