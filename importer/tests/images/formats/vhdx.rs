//! VHDX images other than those that `qemu-img convert` writes.

use std::path::{Path, PathBuf};

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::vhdx::{Block, Vhdx};
use testkit::process::Program;

use crate::formats::check::{check, refused};

const MIB: usize = 1 << 20;

fn write(folder: &Path, image: &[u8]) -> PathBuf {
    let path = folder.join("image");
    std::fs::write(&path, image).or_fail("the image");
    path
}

fn refused_bytes(image: &[u8], sentence: &str) {
    let folder = tempfile::tempdir().or_fail("a folder");
    refused(&write(folder.path(), image), sentence);
}

/// A disk of 9.5 MiB, whose blocks of 2 MiB are not in order, some of them zeroed or trimmed.
fn shuffled() -> Vhdx {
    let block = |index: usize| (index, Block::Present(disk::content(index as u64, 2 << 20)));
    Vhdx {
        blocks: vec![block(4), (1, Block::Absent(2)), block(0), (2, Block::Absent(3)), block(3)],
        ..Vhdx::new((9 << 20) + (512 << 10), 2 * MIB)
    }
}

#[test]
#[ignore = "root: rights of root"]
fn blocks_in_any_order_and_state_are_identical() {
    let folder = tempfile::tempdir().or_fail("a folder");
    for state in [0, 1, 2, 3, 5] {
        let mut vhdx = shuffled();
        vhdx.blocks[1].1 = Block::Absent(state);
        check(&write(folder.path(), &vhdx.bytes()), "vhdx");
    }
}

#[test]
#[ignore = "root: rights of root"]
fn a_table_behind_the_blocks_is_identical() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let vhdx = Vhdx { table_last: true, sequence: [9, 8], is_fixed: true, ..shuffled() };
    check(&write(folder.path(), &vhdx.bytes()), "vhdx");
}

/// QEMU does not support these sectors, so the disk is compared with the content of the blocks.
#[test]
fn sectors_of_4096_bytes_are_read() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let vhdx = Vhdx { sector_size: 4096, ..shuffled() };
    let (image, target) = (write(folder.path(), &vhdx.bytes()), folder.path().join("disk"));
    let import = || Program::new(crate::BINARY).arg("import");
    for program in [import().arg(&image), import().arg("-").stdin_file(&image)] {
        program.arg(&target).run().assert_success("4096-byte sectors");
        assert!(std::fs::read(&target).unwrap() == vhdx.disk());
        std::fs::remove_file(&target).unwrap();
    }
}

/// Only the log of the current header counts.
#[test]
#[ignore = "root: rights of root"]
fn an_image_whose_log_must_be_replayed_is_refused() {
    let image = |log_guid| Vhdx { log_guid, ..shuffled() }.bytes();
    refused_bytes(&image([0, 1]), "replay the log with `qemu-img check -r all`");
    let folder = tempfile::tempdir().or_fail("a folder");
    check(&write(folder.path(), &image([1, 0])), "vhdx");
}
