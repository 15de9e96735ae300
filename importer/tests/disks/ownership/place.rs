//! The targets of the tests, and the disks that the writers bring.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::loopdev::LoopDevice;
use testkit::tools;

pub(crate) const DISK_BYTES: u64 = 3 << 20;

/// Size of the beginning of a disk, which is written last.
pub(crate) const HELD_BYTES: u64 = 1 << 20;

/// A disk, and the compressed object from which it is imported.
pub(crate) struct Disk {
    pub(crate) raw: PathBuf,
    pub(crate) object: Vec<u8>,
}

/// Creates `count` different disks.
pub(crate) fn disks(folder: &Path, count: u64) -> Vec<Disk> {
    let make = |number| {
        let bytes = disk::content(number, DISK_BYTES);
        let raw = folder.join(format!("{number}.raw"));
        std::fs::write(&raw, &bytes).or_fail("a disk");
        Disk { raw, object: tools::filter("gzip", ["-1", "-c"], &bytes) }
    };
    (0..count).map(make).collect()
}

/// The root of a pod's file system; its target can also be written on the command line.
pub(crate) struct Place {
    root: TempDir,
    pub(crate) device: Option<LoopDevice>,
}

impl Place {
    pub(crate) fn with_file() -> Self {
        let root = tempfile::tempdir().or_fail("a folder");
        for folder in ["data", "dev"] {
            std::fs::create_dir(root.path().join(folder)).or_fail(folder);
        }
        Self { root, device: None }
    }

    pub(crate) fn with_device() -> Self {
        let place = Self::with_file();
        let device = LoopDevice::new(place.root(), DISK_BYTES, 512);
        let node = place.root().join("dev/cdi-block-volume");
        std::os::unix::fs::symlink(device.path(), node).or_fail("a device node");
        Self { device: Some(device), ..place }
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root().join("data")
    }

    /// Creates a delta without data on the disk of this name, beside it.
    pub(crate) fn delta(&self, base: &str) -> PathBuf {
        let delta = self.root().join("delta.qcow2");
        let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", base].map(OsStr::new);
        tools::run("qemu-img", create.into_iter().chain([delta.as_os_str()]));
        delta
    }

    /// The path of the file or device.
    pub(crate) fn target(&self) -> PathBuf {
        match &self.device {
            Some(device) => device.path().to_owned(),
            None => self.data().join("disk.img"),
        }
    }
}
