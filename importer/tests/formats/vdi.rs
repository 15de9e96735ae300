//! VDI images other than those that `qemu-img convert` writes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::fail::OrFail;
use testkit::images::Subformat;
use testkit::{disk, tools};

use crate::check::{check, refused};

/// Offset of the header's image type (VirtualBox, `VDICore.h`, `VDIHEADER1PLUS`).
const TYPE_AT: u64 = 0x4C;

fn image(folder: &Path) -> std::path::PathBuf {
    let (raw, image) = (folder.join("disk"), folder.join("image"));
    std::fs::write(&raw, disk::sparse_content(1, 5 << 20, 4)).or_fail("the disk");
    Subformat::new("vdi", "").write(&raw, &image);
    image
}

#[test]
fn a_grown_image_is_identical() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let words = ["resize", "-q", "-f", "vdi"].iter().map(AsRef::as_ref);
    tools::run("qemu-img", words.chain([image.as_os_str(), "4000M".as_ref()]));
    check(&image, "vdi");
}

#[test]
fn images_that_need_a_parent_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let file = File::options().write(true).open(&image).unwrap();
    for kind in [3_u32, 4] {
        file.write_all_at(&kind.to_le_bytes(), TYPE_AT).unwrap();
        refused(&image, "vdi");
    }
}
