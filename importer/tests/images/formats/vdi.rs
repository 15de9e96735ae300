//! VDI images other than those that `qemu-img convert` writes.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::vdi::{Block, Vdi};
use testkit::images::{Oracle, Subformat};
use testkit::{disk, tools};

use crate::formats::check::{check, refused};

/// Offset of the header's image type (VirtualBox, `VDICore.h`, `VDIHEADER1PLUS`).
const TYPE_AT: u64 = 0x4C;

fn image(folder: &Path) -> std::path::PathBuf {
    let (raw, image) = (folder.join("disk"), folder.join("image"));
    std::fs::write(&raw, disk::sparse_content(1, 5 << 20, 4)).or_fail("the disk");
    Subformat::new("vdi", "").write(&raw, &image);
    image
}

#[test]
#[ignore = "root: rights of root"]
fn an_image_that_was_written_in_random_order_is_identical() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let create = ["create", "-q", "-f", "vdi"].map(OsStr::new);
    tools::run("qemu-img", create.into_iter().chain([image.as_os_str(), "9000k".as_ref()]));
    for write in ["write -P 1 5M 3k", "write -P 2 0 1M", "write -P 3 2047k 1M", "write -z 0 4k"] {
        let words = ["-f", "vdi", "-c", write].map(OsStr::new);
        tools::run("qemu-io", words.into_iter().chain([image.as_os_str()]));
    }
    check(&image, "vdi");
}

#[test]
#[ignore = "tools: qemu-img"]
fn images_that_need_a_parent_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let file = File::options().write(true).open(&image).unwrap();
    for kind in [3_u32, 4] {
        file.write_all_at(&kind.to_le_bytes(), TYPE_AT).unwrap();
        refused(&image, "the vdi image stores only the differences to another");
    }
}

/// Imports an image that was built by hand, by both routes. The disk must be the one that
/// qemu-img makes, which must be the one that `VDICore.h` specifies.
fn check_by_hand(vdi: &Vdi) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image");
    std::fs::write(&image, vdi.build()).or_fail("the image");
    let raw = folder.path().join("raw");
    Oracle::ask("vdi", &image, &raw);
    let read = std::fs::read(&raw).or_fail("qemu-img's disk");
    assert!(read == vdi.disk(), "qemu-img reads another disk than the specification says");
    check(&image, "vdi");
}

/// A disk of six blocks: four in no order, of which two are the same, one discarded and one never
/// written. The image also has blocks that nothing maps.
fn shuffled() -> Vdi {
    let map = [3, 0, 5, 3].map(Block::At).to_vec();
    let blocks = (0..7).map(|seed| disk::content(seed, 1 << 20)).collect();
    Vdi::new((6 << 20) - 512, [map, vec![Block::Zero, Block::Free]].concat(), blocks)
}

#[test]
#[ignore = "root: rights of root"]
fn blocks_in_any_order_are_identical() {
    check_by_hand(&shuffled());
}

#[test]
#[ignore = "root: rights of root"]
fn the_headers_of_all_writers_are_read() {
    // VirtualBox 2 and earlier: map and data follow the header. QEMU states 384 bytes of header.
    for (text, header_bytes) in [
        ("<<< innotek VirtualBox Disk Image >>>\n", 400),
        ("<<< Sun VirtualBox Disk Image >>>\n", 384),
        ("", 400),
    ] {
        check_by_hand(&Vdi {
            text,
            header_bytes,
            map_offset: 512,
            data_offset: 1024,
            ..shuffled()
        });
    }
    let (map, blocks) = (vec![Block::At(1), Block::At(0)], vec![disk::content(1, 1 << 20); 2]);
    check_by_hand(&Vdi { kind: 2, ..Vdi::new(2 << 20, map, blocks) });
}

#[test]
#[ignore = "root: rights of root"]
fn an_image_with_its_map_behind_the_blocks_is_identical() {
    let mut vdi = Vdi { map_offset: 32 << 20, data_offset: 1 << 20, ..shuffled() };
    // No block is mapped twice: it would be kept for ever, and no program writes that.
    vdi.map[3] = Block::At(4);
    check_by_hand(&vdi);
}

#[test]
#[ignore = "root: rights of root"]
fn a_disk_of_an_odd_number_of_bytes_is_rounded_up() {
    check_by_hand(&Vdi { virtual_size: (5 << 20) + 1, ..shuffled() });
}

#[test]
#[ignore = "root: rights of root"]
fn more_blocks_than_the_disk_needs_are_ignored() {
    check_by_hand(&Vdi { virtual_size: 512, ..shuffled() });
    check_by_hand(&Vdi { virtual_size: 0, ..shuffled() });
}

/// Asserts that the image is refused with this sentence.
fn refused_by_hand(vdi: &Vdi, sentence: &str) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = folder.path().join("image");
    std::fs::write(&image, vdi.build()).or_fail("the image");
    refused(&image, sentence);
}

#[test]
fn a_block_beyond_the_end_is_reported_as_truncation() {
    let mut vdi = shuffled();
    vdi.map[0] = Block::At(7);
    refused_by_hand(&vdi, "the image is truncated");
    vdi.map[0] = Block::At(0xffff_fffd);
    refused_by_hand(&vdi, "the image is truncated");
}
