//! VHD images other than those that `qemu-img convert` writes.

use std::path::{Path, PathBuf};

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::vhd::{Dynamic, Footer, Table, fixed};
use testkit::process::Program;

use crate::formats::check::{check, refused};

const MIB: usize = 1 << 20;

fn write(folder: &Path, image: &[u8]) -> PathBuf {
    let path = folder.join("image");
    std::fs::write(&path, image).or_fail("the image");
    path
}

/// Imports the image by both routes, and compares the disk with the one that qemu-img reads.
fn check_bytes(image: &[u8]) {
    let folder = tempfile::tempdir().or_fail("a folder");
    check(&write(folder.path(), image), "vpc");
}

fn refused_bytes(image: &[u8], sentence: &str) {
    let folder = tempfile::tempdir().or_fail("a folder");
    refused(&write(folder.path(), image), sentence);
}

/// A disk of 9 MiB and one sector, whose blocks of 2 MiB are not in order.
fn shuffled() -> Dynamic {
    let block = |index: usize| (index, disk::content(index as u64, 2 << 20));
    Dynamic { blocks: [3, 0, 4, 1].map(block).into(), ..Dynamic::new((9 << 20) + 512, 2 * MIB) }
}

#[test]
#[ignore = "root: rights of root"]
fn blocks_in_any_order_are_identical() {
    check_bytes(&shuffled().bytes());
}

#[test]
#[ignore = "root: rights of root"]
fn a_table_behind_the_blocks_is_identical() {
    check_bytes(&Dynamic { table: Table::Last, spare_entries: 3, ..shuffled() }.bytes());
}

/// QEMU reads a block completely, whatever its bitmap says.
#[test]
#[ignore = "root: rights of root"]
fn sector_bitmaps_are_ignored() {
    for bitmap in [0, 0x0f] {
        check_bytes(&Dynamic { bitmap, ..shuffled() }.bytes());
    }
}

/// The creators are those that all versions of QEMU treat alike.
#[test]
#[ignore = "slow: 3 s of CPU time"]
fn the_size_is_taken_from_geometry_or_footer_as_by_qemu() {
    for creator in [b"win ", b"qem2", b"d2v ", b"tap\0", b"CTXS", b"vpc ", b"qemu"] {
        for geometry in [(200, 4, 17), (65_535, 16, 255)] {
            let mut dynamic = shuffled();
            (dynamic.footer.creator, dynamic.footer.geometry) = (*creator, geometry);
            check_bytes(&dynamic.bytes());

            // In a fixed disk, the geometry falls short of the size by less than a cylinder.
            let mut footer = Footer::fixed(9 << 20);
            footer.creator = *creator;
            check_bytes(&fixed(&disk::content(1, 9 << 20), &footer));
        }
    }
}

/// The disk has whole MiB, as Azure requires.
#[test]
#[ignore = "root: rights of root"]
fn a_fixed_disk_loses_its_footer_unless_it_is_imported_as_raw() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let content = disk::content(7, 3 << 20);
    let image = write(folder.path(), &fixed(&content, &Footer::fixed(3 << 20)));
    check(&image, "vpc");
    let target = folder.path().join("disk");
    for (format, expected) in
        [("vpc", content.clone()), ("vhd", content), ("raw", std::fs::read(&image).unwrap())]
    {
        Program::new(crate::BINARY)
            .args(["import", "--format", format])
            .arg(&image)
            .arg(&target)
            .run()
            .assert_success(format);
        assert!(std::fs::read(&target).unwrap() == expected, "--format {format}");
        std::fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_dmg_is_recognized_by_its_end_and_refused() {
    let mut image = vec![1; 5000];
    image.extend(b"koly\0\0\0\x04\0\0\x02\0");
    image.resize(5512, 0);
    refused_bytes(&image, "the image is in dmg format");
}
