//! Images of all kinds, and QEMU's descriptions of them.

use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Content, SUBFORMATS, Spec};
use testkit::process::{Finished, Program};
use testkit::tools;

/// Size of the disk in most samples, which is not a whole number of MiB.
const DISK_BYTES: u64 = (5 << 20) + 512;

/// Offset of a qcow2 header's incompatible features; bit 0: dirty (qcow2.rst, "Header").
const INCOMPATIBLE_AT: u64 = 72;

/// Calls `check` with each sample and its name.
pub(crate) fn each(check: impl Fn(&Path, &str)) {
    // Write-back may allocate blocks, which must not happen between our program and QEMU's.
    let check = |image: &Path, case: &str| {
        std::fs::File::open(image).and_then(|file| file.sync_all()).or_fail(case);
        check(image, case);
    };
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name);
    let raw = path("raw");
    std::fs::write(&raw, disk::sparse_content(1, DISK_BYTES, 3)).or_fail("write a disk");
    check(&raw, "raw");
    let image = path("image");
    for subformat in SUBFORMATS {
        subformat.write(&raw, &image);
        check(&image, &subformat.to_string());
    }
    for (name, content) in [
        ("empty", Vec::new()),
        ("one byte", vec![1]),
        ("an odd length", vec![1; 1000]),
        // A guest may have written what looks compressed; it is a disk all the same.
        ("gzip", tools::filter("gzip", ["-c"], &[7; 100_000])),
        ("xz", tools::filter("xz", ["-c"], &[7; 100_000])),
    ] {
        std::fs::write(&image, content).or_fail(name);
        check(&image, name);
    }
    let sparse = std::fs::File::create(&image).or_fail("a file");
    sparse.set_len(3 << 40).or_fail("a large sparse file");
    check(&image, "sparse");

    let spec = Spec::new(Content::Snapshots);
    let qcow2 = spec.build(folder.path(), "snapshots").qcow2;
    check(&qcow2, "snapshots");
    let features = std::fs::File::options().write(true).open(&qcow2).or_fail("an image");
    features.write_all_at(&1_u64.to_be_bytes(), INCOMPATIBLE_AT).or_fail("the dirty bit");
    check(&qcow2, "dirty");
    let words = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "raw"].map(str::to_owned);
    let delta = path("delta");
    tools::run("qemu-img", words.into_iter().chain([delta.display().to_string()]));
    check(&delta, "delta");
}

/// Calls `check` with each sample that both programs refuse, and its name.
pub(crate) fn each_broken(check: impl Fn(&Path, &str)) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let raw = folder.path().join("raw");
    std::fs::write(&raw, disk::sparse_content(1, DISK_BYTES, 3)).or_fail("write a disk");
    let image = folder.path().join("image");
    for format in ["qcow2", "vmdk", "vdi", "vhdx"] {
        let whole = SUBFORMATS.into_iter().find(|subformat| subformat.format == format);
        whole.or_fail(format).write(&raw, &image);
        let bytes = std::fs::read(&image).or_fail(format);
        std::fs::write(&image, bytes.get(..80).or_fail(format)).or_fail(format);
        check(&image, format);
    }
}

pub(crate) fn qemu_info(arguments: &[&str], image: &Path) -> Finished {
    let program = Program::new(tools::find("qemu-img")).args(["info", "-U"]);
    program.args(arguments.iter().copied()).arg(image).run()
}

/// The output of QEMU's `qemu-img info --output=json`.
pub(crate) fn qemu(image: &Path, case: &str) -> Value {
    let finished = qemu_info(&["--output=json"], image);
    finished.assert_success(case);
    serde_json::from_str(&finished.stdout).or_fail(case)
}
