//! Imports to files and devices, and a delta.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::loopdev::{DIRT, LoopDevice};
use testkit::process::Program;
use testkit::tmpfs::fast_folder;

use crate::sweep::victim::{IMPORTER, MOST, Victim, sweep};

/// Size of the beginning of a disk, which is written last.
pub(crate) const HELD_BYTES: u64 = 1 << 20;

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

fn import(source: &Path, target: &Path) -> Program {
    Program::new(IMPORTER).args(["import", "-q"]).arg(source).arg(target)
}

/// Fails the test if `target` looks like a disk.
#[track_caller]
pub(crate) fn assert_hidden(target: &Path, said: &str) {
    assert!(
        !target.exists() || disk::begins_with_only(&[0], target, HELD_BYTES),
        "a part of a disk can be seen: {said}"
    );
}

fn import_to_file(source: fn(&Image) -> &PathBuf) -> impl Fn(&Image, &Victim<'_>) {
    move |image, victim| {
        let folder = fast_folder();
        let target = folder.path().join("disk.img");
        let finished = victim.program(import(source(image), &target)).start().wait();
        if victim.has_succeeded(&finished) {
            disk::assert_same(&target, &image.raw, image.virtual_size, &finished.stderr);
        } else {
            assert_hidden(&target, &finished.stderr);
        }
    }
}

#[test]
#[ignore = "slow: 5 s of CPU time"]
fn a_raw_disk_in_a_file_is_complete_or_hidden_whatever_fails() {
    let folder = fast_folder();
    let image = image(folder.path());
    let run = import_to_file(|image| &image.raw);
    sweep("raw to file", MOST, |victim| run(&image, victim));
}

#[test]
#[ignore = "slow: 7 s of CPU time"]
fn an_image_in_a_file_is_complete_or_hidden_whatever_fails() {
    let folder = fast_folder();
    let image = image(folder.path());
    let run = import_to_file(|image| &image.qcow2);
    sweep("qcow2 to file", MOST, |victim| run(&image, victim));
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
    fn with<T>(&self, work: impl FnOnce(&Path) -> T) -> T {
        let idle = || self.idle.lock().ok().or_fail("idle devices");
        let device = idle().pop();
        let device = device.unwrap_or_else(|| LoopDevice::new(self.folder, DISK_BYTES, 512));
        std::fs::write(device.path(), vec![DIRT; usize::try_from(DISK_BYTES).or_fail("a size")])
            .or_fail("dirt");
        let value = work(device.path());
        idle().push(device);
        value
    }
}

fn import_to_device(name: &str, source: fn(&Image) -> &PathBuf) {
    let folder = fast_folder();
    let image = image(folder.path());
    let devices = Devices::new(folder.path());
    sweep(name, MOST, |victim| {
        devices.with(|device| {
            let finished = victim.program(import(source(&image), device)).start().wait();
            if victim.has_succeeded(&finished) {
                disk::assert_same(device, &image.raw, image.virtual_size, &finished.stderr);
            } else {
                // A device that was not touched is still full of dirt.
                let is_hidden = [0, DIRT]
                    .iter()
                    .any(|byte| disk::begins_with_only(&[*byte], device, HELD_BYTES));
                assert!(is_hidden, "a part of a disk can be seen: {}", finished.stderr);
            }
        });
    });
}

#[test]
#[ignore = "slow: 7 s of CPU time"]
fn a_raw_disk_on_a_device_is_complete_or_hidden_whatever_fails() {
    import_to_device("raw to device", |image| &image.raw);
}

#[test]
#[ignore = "slow: 8 s of CPU time"]
fn an_image_on_a_device_is_complete_or_hidden_whatever_fails() {
    import_to_device("qcow2 to device", |image| &image.qcow2);
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
        let finished = victim.program(program.arg(&delta.qcow2).arg(&target)).start().wait();
        if victim.has_succeeded(&finished) {
            disk::assert_same(&target, &delta.raw, delta.virtual_size, &finished.stderr);
        }
    });
}
