//! An import never overwrites its own source, by whatever names the two are given.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::tools;

use crate::ownership::importer;
use crate::ownership::place::{DISK_BYTES, Disk, disks};

const REFUSED: &str = "it is the source, or overlaps it";

struct Scene {
    folder: tempfile::TempDir,
    disk: Disk,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().or_fail("a folder");
        let disk = disks(folder.path(), 1).remove(0);
        Self { folder, disk }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn copy(&self, name: &str) -> PathBuf {
        std::fs::copy(&self.disk.raw, self.path(name)).or_fail(name);
        self.path(name)
    }
}

/// Asserts that `words` with this source and target are refused, and do not change `precious`.
#[track_caller]
fn refused(words: &[&str], source: &Path, target: &Path, precious: &Path) {
    let before = std::fs::read(precious).or_fail(precious.display());
    let finished = importer([]).args(words.iter().copied()).arg(source).arg(target).run();
    finished.assert_failure(7, REFUSED);
    assert!(std::fs::read(precious).or_fail(precious.display()) == before, "it was changed");
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_file_is_not_its_own_target_by_any_name() {
    let scene = Scene::new();
    let file = scene.copy("file");
    std::fs::hard_link(&file, scene.path("hard")).or_fail("a hard link");
    symlink(&file, scene.path("soft")).or_fail("a link");
    for verb in ["import", "convert"] {
        // Source and target may both be links.
        for (source, target) in
            [("file", "file"), ("file", "hard"), ("file", "soft"), ("soft", "hard")]
        {
            refused(&[verb, "--force"], &scene.path(source), &scene.path(target), &file);
        }
    }
    let delta = scene.path("delta.qcow2");
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "0.raw"].map(OsStr::new);
    tools::run("qemu-img", create.into_iter().chain([delta.as_os_str()]));
    refused(&["apply", "--base", "0.raw"], &delta, &delta, &delta);
}

#[test]
fn a_file_on_standard_input_cannot_be_its_own_target() {
    let scene = Scene::new();
    let file = scene.copy("file");
    // A file, not a pipe.
    let input = std::fs::File::open(&file).or_fail("the file");
    let mut convert = Command::new(crate::BINARY);
    convert.args(["convert", "--force", "-"]).arg(&file).stdin(input);
    let finished = convert.output().or_fail("the importer");
    assert_eq!(finished.status.code(), Some(7), "{finished:?}");
    assert!(String::from_utf8_lossy(&finished.stderr).contains(REFUSED), "{finished:?}");
    testkit::disk::assert_same(&file, &scene.disk.raw, DISK_BYTES, "the file");
}

#[test]
fn the_disk_of_an_archive_does_not_replace_the_archive() {
    let scene = Scene::new();
    scene.copy("vm.raw");
    std::fs::write(scene.path("vm.ovf"), "<Envelope/>").or_fail("a description");
    let ova = scene.path("vm.ova");
    let folder = scene.folder.path();
    let words = ["--format=ustar", "-C"].map(OsStr::new);
    let words = words.into_iter().chain([folder.as_os_str(), OsStr::new("-cf"), ova.as_os_str()]);
    tools::run("tar", words.chain(["vm.ovf", "vm.raw"].map(OsStr::new)));
    refused(&["convert", "--ova", "--force", "--output-format", "raw"], &ova, &ova, &ova);
}

#[test]
fn files_of_an_archive_do_not_replace_the_archive() {
    let scene = Scene::new();
    let dir = scene.path("dir");
    std::fs::create_dir(&dir).or_fail("a folder");
    std::fs::write(scene.path("archive.tar"), "another").or_fail("a file");
    std::fs::write(scene.path("other"), "other").or_fail("a file");
    let archive = dir.join("archive.tar");
    let folder = scene.folder.path();
    let words = [OsStr::new("-C"), folder.as_os_str(), OsStr::new("-cf"), archive.as_os_str()];
    tools::run("tar", words.into_iter().chain(["other", "archive.tar"].map(OsStr::new)));
    refused(&["unpack"], &archive, &dir, &archive);
    let files = std::fs::read_dir(&dir).or_fail("the folder").count();
    assert_eq!(files, 1, "another file was unpacked");
    // An archive may lie where it is unpacked, if nothing in it has its name.
    std::fs::rename(&archive, dir.join("renamed.tar")).or_fail("another name");
    let archive = dir.join("renamed.tar");
    importer(["unpack", "-q"]).arg(&archive).arg(&dir).run().assert_success("beside");
    assert_eq!(std::fs::read(dir.join("archive.tar")).or_fail("a file"), b"another");
}

#[test]
#[ignore = "root: loop devices"]
fn a_device_and_what_backs_it_cannot_be_source_and_target() {
    let scene = Scene::new();
    let below = LoopDevice::new(scene.folder.path(), 4 << 20, 512);
    let above = LoopDevice::over(&below, &[]);
    let file = below.backing().or_fail("its file").to_owned();
    let devices = [below.path(), above.path()];
    let import = importer(["import", "-q"]).arg(&scene.disk.raw).arg(above.path());
    import.run().assert_success("content");
    for (source, target) in [
        (devices[0], devices[0]),
        (devices[0], devices[1]),
        (devices[1], devices[0]),
        (devices[1], &file),
        (&file, devices[1]),
        (&file, devices[0]),
        (devices[0], &file),
    ] {
        refused(&["convert", "--force", "--format=raw"], source, target, devices[1]);
    }
}

/// A partition of a loop device. It is removed on drop, because it would outlast the device.
pub(crate) struct Partition {
    disk: PathBuf,
    number: String,
}

impl Partition {
    /// Adds a partition of `length` MiB that begins at `start` MiB of `disk`.
    pub(crate) fn new(disk: &Path, number: u64, start: u64, length: u64) -> Self {
        let partition = Self { disk: disk.to_owned(), number: number.to_string() };
        let numbers = [number, start * 2048, length * 2048].map(|number| number.to_string());
        let words = [disk.as_os_str()].into_iter().chain(numbers.iter().map(OsStr::new));
        tools::run("addpart", words);
        partition
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("{}p{}", self.disk.display(), self.number))
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        tools::run("delpart", [self.disk.as_os_str(), OsStr::new(&self.number)]);
    }
}

#[test]
#[ignore = "root: loop devices"]
fn a_disk_and_its_partition_conflict_but_two_partitions_do_not() {
    let scene = Scene::new();
    let disk = LoopDevice::new(scene.folder.path(), 8 << 20, 512);
    let partitions = [Partition::new(disk.path(), 1, 1, 3), Partition::new(disk.path(), 2, 4, 3)];
    let [first, second] = partitions.each_ref().map(Partition::path);
    importer(["import", "-q"]).arg(&scene.disk.raw).arg(&first).run().assert_success("content");
    for (source, target) in [(&*first, disk.path()), (disk.path(), &first), (&first, &first)] {
        refused(&["convert", "--format=raw"], source, target, disk.path());
    }
    let convert = importer(["convert", "-q", "--format=raw"]).arg(&first).arg(&second);
    convert.run().assert_success("beside");
    testkit::disk::assert_same(&second, &scene.disk.raw, DISK_BYTES, "beside");
}
