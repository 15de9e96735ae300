//! Imports to files and devices, and a delta.

use std::path::Path;
use std::sync::Mutex;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::loopdev::{DIRT, LoopDevice};
use testkit::process::Program;
use testkit::tmpfs::fast_folder;

use crate::sweep::victim::{IMPORTER, MOST, Victim, sweep};

/// Size of the beginning of a disk, which is written last.
const HELD_BYTES: u64 = 1 << 20;

const DISK_BYTES: u64 = 4 << 20;

/// A compressed qcow2 image, and the disk that qemu-img makes of it.
fn image(folder: &Path) -> Image {
    let spec = Spec {
        compression: Compression::Zlib,
        virtual_size: DISK_BYTES,
        ..Spec::new(Content::Dense)
    };
    spec.build(folder, "image")
}

/// Fails the test if `target` looks like a disk. A device that was not touched is full of dirt.
#[track_caller]
pub(crate) fn assert_hidden(target: &Path, said: &str) {
    let has_only = |byte| disk::begins_with_only(&[byte], target, HELD_BYTES);
    assert!(
        !target.exists() || has_only(0) || has_only(DIRT),
        "a part of a disk can be seen: {said}"
    );
}

/// Devices that are used by one run at a time: attaching one takes longer than a run.
struct Devices<'f> {
    folder: &'f Path,
    idle: Mutex<Vec<LoopDevice>>,
}

impl<'f> Devices<'f> {
    fn new(folder: &'f Path) -> Self {
        Self { folder, idle: Mutex::new(Vec::new()) }
    }

    /// Calls `work` with a device that is full of dirt.
    fn with(&self, work: impl FnOnce(&Path)) {
        let idle = || self.idle.lock().ok().or_fail("idle devices");
        let device = idle().pop();
        let device = device.unwrap_or_else(|| LoopDevice::new(self.folder, DISK_BYTES, 512));
        std::fs::write(device.path(), vec![DIRT; usize::try_from(DISK_BYTES).or_fail("a size")])
            .or_fail("dirt");
        work(device.path());
        idle().push(device);
    }
}

/// Imports the raw disk or the image to `target`.
fn import(victim: &Victim<'_>, image: &Image, is_raw: bool, target: &Path) {
    let source = if is_raw { &image.raw } else { &image.qcow2 };
    let program = Program::new(IMPORTER).args(["import", "-q"]).arg(source).arg(target);
    let finished = victim.program(program).run();
    if victim.has_succeeded(&finished) {
        disk::assert_same(target, &image.raw, image.virtual_size, &finished.stderr);
    } else {
        assert_hidden(target, &finished.stderr);
    }
}

#[test]
#[ignore = "slow: 12 s of CPU time"]
fn a_file_is_complete_or_hidden_whatever_fails() {
    let folder = fast_folder();
    let image = image(folder.path());
    for (name, is_raw) in [("raw to file", true), ("qcow2 to file", false)] {
        sweep(name, MOST, |victim| {
            import(victim, &image, is_raw, &fast_folder().path().join("disk.img"));
        });
    }
}

#[test]
#[ignore = "slow: 15 s of CPU time"]
fn a_device_is_complete_or_hidden_whatever_fails() {
    let folder = fast_folder();
    let image = image(folder.path());
    let devices = Devices::new(folder.path());
    for (name, is_raw) in [("raw to device", true), ("qcow2 to device", false)] {
        sweep(name, MOST, |victim| devices.with(|device| import(victim, &image, is_raw, device)));
    }
}

/// A disk that is changed in place may be partly changed after a failure (SECURITY.md, "Not
/// promised"), so that only a reported success is checked.
#[test]
#[ignore = "slow: 7 s of CPU time"]
fn a_delta_is_complete_if_it_reports_success_whatever_fails() {
    let folder = fast_folder();
    let spec = Spec { virtual_size: DISK_BYTES, ..Spec::new(Content::Sparse) };
    let delta = spec.build_delta(DISK_BYTES, folder.path(), "delta");
    sweep("delta to file", MOST, |victim| {
        let folder = fast_folder();
        let target = folder.path().join("disk.img");
        std::fs::copy(&delta.base, &target).or_fail("the base");
        let program = Program::new(IMPORTER).args(["apply", "-q", "--base"]).arg(delta.base_name());
        let finished = victim.program(program.arg(&delta.qcow2).arg(&target)).run();
        if victim.has_succeeded(&finished) {
            disk::assert_same(&target, &delta.raw, delta.virtual_size, &finished.stderr);
        }
    });
}
