//! Finds the headers and tables of an image by its own header, without the parsers under test.

use std::ops::Range;

use diskimage::bytes_at::{be32, be64, le16, le32, le64};

const SECTOR: usize = 512;

/// Returns the ranges with information, without padding.
pub(crate) fn find(format: &str, image: &[u8]) -> Vec<Range<usize>> {
    let mut ranges = match format {
        "vdi" => vdi(image),
        "vmdk" => vmdk(image),
        "vpc" => vpc(image),
        "vhdx" => vhdx(image),
        "qcow2" => qcow2(image),
        other => panic!("unknown format {other}"),
    };
    for range in &mut ranges {
        range.end = range.end.min(image.len());
    }
    ranges
}

fn vdi(image: &[u8]) -> Vec<Range<usize>> {
    let map = number(le32(image, 0x154));
    let blocks = number(le32(image, 0x180));
    vec![0..0x1d8, map..map + 4 * blocks]
}

fn vmdk(image: &[u8]) -> Vec<Range<usize>> {
    // The header, the text of the descriptor, directories and tables, the markers of compressed
    // grains and of tables, and the footer.
    let descriptor = SECTOR * sectors(le64(image, 28));
    let text = image[descriptor..].iter().position(|byte| *byte == 0).unwrap_or(0);
    let mut ranges = vec![0..80, 510..512, descriptor..descriptor + text];
    let is_compressed = le16(image, 77) == Some(1);
    let end = image.len();
    if is_compressed {
        ranges.push(end - 3 * SECTOR..end - 2 * SECTOR + 80);
        ranges.push(end - SECTOR..end - SECTOR + 16);
    }
    // If the header does not say where the directory is, the footer does.
    let has_footer = le64(image, 56) == Some(u64::MAX);
    let header = if has_footer { end - 2 * SECTOR } else { 0 };
    let grains = sectors(le64(image, 12)).div_ceil(sectors(le64(image, 20)));
    let per_table = number(le32(image, 44));
    for directory in [48, 56].map(|at| SECTOR * sectors(le64(image, header + at))) {
        if directory == 0 {
            continue;
        }
        let tables =
            (0..grains.div_ceil(per_table)).map(|table| le32(image, directory + 4 * table));
        let tables: Vec<usize> = tables.map(|sector| SECTOR * number(sector)).collect();
        ranges.push(directory..directory + 4 * tables.len());
        for table in tables.into_iter().filter(|table| *table != 0) {
            ranges.push(table..table + 4 * per_table.min(grains));
            if has_footer {
                ranges.push(table - SECTOR..table - SECTOR + 16);
            }
            if is_compressed {
                let grains =
                    (0..per_table.min(grains)).filter_map(|grain| le32(image, table + 4 * grain));
                let markers =
                    grains.filter(|sector| *sector > 1).map(|sector| SECTOR * number(Some(sector)));
                ranges.extend(markers.map(|marker| marker..marker + 14));
            }
        }
    }
    ranges
}

fn vpc(image: &[u8]) -> Vec<Range<usize>> {
    let footer = image.len() - SECTOR;
    let mut ranges: Vec<_> = std::iter::once(footer..footer + 96).collect();
    if image.starts_with(b"conectix") {
        let header = sectors(be64(image, 16));
        let table = sectors(be64(image, header + 16));
        let entries = number(be32(image, header + 28));
        ranges.extend([0..96, header..header + 80, table..table + 4 * entries]);
        // The bitmaps of the blocks.
        let blocks = (0..entries).filter_map(|entry| be32(image, table + 4 * entry));
        let bitmaps =
            blocks.filter(|sector| *sector != u32::MAX).map(|sector| SECTOR * number(Some(sector)));
        ranges.extend(bitmaps.map(|bitmap| bitmap..bitmap + 16));
    }
    ranges
}

fn vhdx(image: &[u8]) -> Vec<Range<usize>> {
    const KIB: usize = 1 << 10;
    let mut ranges = vec![0..16, 64 * KIB..64 * KIB + 80, 128 * KIB..128 * KIB + 80];
    for region_table in [192 * KIB, 256 * KIB] {
        let entries = number(le32(image, region_table + 8));
        ranges.push(region_table..region_table + 16 + 32 * entries);
        for entry in (0..entries).map(|entry| region_table + 16 + 32 * entry) {
            let (at, length) = (sectors(le64(image, entry + 16)), number(le32(image, entry + 24)));
            // The items of the metadata region are behind its first 64 KiB; of the block
            // allocation table, only the beginning is not zero.
            let spots = [0..256, 64 * KIB..64 * KIB + 64];
            ranges.extend(spots.map(|spot| at + spot.start.min(length)..at + spot.end.min(length)));
        }
    }
    ranges.sort_by_key(|range| range.start);
    ranges.dedup();
    ranges
}

/// Returns the header, the L1 and L2 tables of the disk and of snapshots, the refcount table and
/// its blocks, and the snapshot table.
fn qcow2(image: &[u8]) -> Vec<Range<usize>> {
    const OFFSET_BITS: u64 = 0x00ff_ffff_ffff_fe00;
    let cluster = 1 << number(be32(image, 20));
    let places = |table: &Range<usize>| {
        let entries = table.clone().step_by(8).filter_map(|at| be64(image, at));
        let places = entries.map(|entry| sectors(Some(entry & OFFSET_BITS)));
        places.filter(|at| *at != 0).collect::<Vec<_>>()
    };
    let mut l1_tables = vec![(sectors(be64(image, 40)), number(be32(image, 36)))];
    let refcount_table = sectors(be64(image, 48));
    let mut ranges = vec![0..112, refcount_table..refcount_table + cluster];
    ranges.extend(places(&ranges[1]).into_iter().map(|block| block..block + cluster));
    // The samples' snapshot entries have no names and 16 bytes of extra data.
    let snapshots = sectors(be64(image, 64));
    for entry in (0..number(be32(image, 60))).map(|index| snapshots + index * 56) {
        ranges.push(entry..entry + 56);
        l1_tables.push((sectors(be64(image, entry)), number(be32(image, entry + 8))));
    }
    for (at, entries) in l1_tables {
        let l1 = at..at + 8 * entries;
        ranges.extend(places(&l1).into_iter().map(|table| table..table + cluster));
        ranges.push(l1);
    }
    ranges.sort_by_key(|range| range.start);
    ranges.dedup();
    ranges
}

fn number(field: Option<u32>) -> usize {
    usize::try_from(field.unwrap()).unwrap()
}

fn sectors(field: Option<u64>) -> usize {
    usize::try_from(field.unwrap()).unwrap()
}
