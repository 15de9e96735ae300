//! Loop devices: real block devices of any size and sector size, without hardware.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FlockOperation;

use crate::fail::OrFail;
use crate::tools;

/// The byte that fills a device before an import, so that anything not written or zeroed is
/// noticed.
pub const DIRT: u8 = 0xFF;

/// An attached loop device. When dropped, it is detached and its backing file is removed.
pub struct LoopDevice {
    device: PathBuf,
    backing: Option<PathBuf>,
    bytes: u64,
}

impl LoopDevice {
    /// Attaches a device of `bytes` (a multiple of `sector_size`), filled with 0xFF, whose backing
    /// file is in `folder`. Needs root.
    pub fn new(folder: &Path, bytes: u64, sector_size: u32) -> Self {
        Self::filled(folder, bytes, sector_size, make_dirty)
    }

    /// Like [`new`](Self::new), but sparse, so the device may be of any size.
    pub fn empty(folder: &Path, bytes: u64, sector_size: u32) -> Self {
        Self::filled(folder, bytes, sector_size, |backing, bytes| {
            let file = File::create(backing).or_fail(backing.display());
            file.set_len(bytes).or_fail(backing.display());
        })
    }

    fn filled(folder: &Path, bytes: u64, sector_size: u32, fill: fn(&Path, u64)) -> Self {
        assert_eq!(bytes % u64::from(sector_size), 0, "a device holds whole sectors");
        let backing = tempfile::Builder::new()
            .prefix("loop-")
            .tempfile_in(folder)
            .or_fail("create the backing file of a loop device")
            .into_temp_path()
            .keep()
            .or_fail("keep the backing file of a loop device");
        // Filled before it is attached: through the device, every byte would be copied twice.
        fill(&backing, bytes);
        Self { device: attach(&backing, sector_size, &[]), backing: Some(backing), bytes }
    }

    /// Attaches a device on top of `below`, another loop device, with these `options` of losetup.
    /// This one must be dropped first.
    pub fn over(below: &Self, options: &[&str]) -> Self {
        Self { device: attach(&below.device, 512, options), backing: None, bytes: below.bytes }
    }

    /// Attaches a device with the content of `file`, which is not removed.
    pub fn of_file(file: &Path) -> Self {
        Self {
            device: attach(file, 512, &[]),
            backing: None,
            bytes: std::fs::metadata(file).or_fail(file.display()).len(),
        }
    }

    /// Makes the device larger: `bytes` in total.
    pub fn grow(&mut self, bytes: u64) {
        let backing = self.backing.as_deref().or_fail("a backing file");
        let file = File::options().write(true).open(backing).or_fail(backing.display());
        file.set_len(bytes).or_fail(backing.display());
        tools::run("losetup", ["--set-capacity".as_ref(), self.device.as_os_str()]);
        self.bytes = bytes;
    }

    /// The backing file of the device, if the device owns one.
    pub fn backing(&self) -> Option<&Path> {
        self.backing.as_deref()
    }

    /// The device node, `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.device
    }

    /// Size of the device in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A mounted file system. It is unmounted when dropped.
pub struct Mount {
    folder: PathBuf,
}

impl Mount {
    /// Runs `mount` with these words and `folder`. Needs root.
    pub fn new(words: &[&str], folder: &Path) -> Self {
        let words = words.iter().map(AsRef::as_ref);
        tools::run("mount", words.chain([folder.as_os_str()]));
        Self { folder: folder.to_owned() }
    }

    /// Makes a file system on `device` with the command line `mkfs`, and mounts it with `options`.
    pub fn of_device(device: &Path, mkfs: &str, options: &str, folder: &Path) -> Self {
        let device = device.to_string_lossy();
        let mut words = mkfs.split(' ').chain([&*device]);
        tools::run(words.next().or_fail("a program"), words);
        Self::new(&["-o", options, &device], folder)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        tools::unmount(&self.folder);
    }
}

/// Attaches a loop device to `backing` and returns its device node.
fn attach(backing: &Path, sector_size: u32, options: &[&str]) -> PathBuf {
    let sectors = sector_size.to_string();
    let args = ["--find", "--show", "--sector-size", &sectors];
    let words = args.iter().chain(options).map(AsRef::as_ref).chain([backing.as_os_str()]);
    let _turn = turn();
    PathBuf::from(tools::run("losetup", words).trim())
}

/// Returns a machine-wide lock for finding a free loop device. If two `losetup --find` choose the
/// same device, the loser claims it for a moment. A program that then opens the device
/// exclusively, as an import does, would get EBUSY.
fn turn() -> File {
    let path = "/dev/loop-control";
    let file = File::open(path).or_fail(path);
    rustix::fs::flock(&file, FlockOperation::LockExclusive).or_fail(path);
    file
}

/// Makes `backing` a file of `bytes` bytes of 0xFF.
fn make_dirty(backing: &Path, bytes: u64) {
    let file = File::create(backing).or_fail(backing.display());
    let dirt = vec![DIRT; 1 << 20];
    let mut offset = 0;
    while offset < bytes {
        let length = usize::try_from(bytes - offset).unwrap_or(usize::MAX).min(dirt.len());
        file.write_all_at(&dirt[..length], offset).or_fail(backing.display());
        offset += length as u64;
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached =
            Command::new(tools::find("losetup")).arg("--detach").arg(&self.device).status();
        let detached = detached.is_ok_and(|status| status.success());
        // A second panic would hide the first.
        assert!(detached || std::thread::panicking(), "{} is still in use", self.device.display());
        // A leftover file is removed together with the temporary folder.
        if let Some(backing) = &self.backing {
            std::fs::remove_file(backing).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk;

    #[test]
    #[ignore = "root: loop devices"]
    fn a_device_has_the_given_sector_size_and_is_filled_with_dirt() {
        let folder = tempfile::tempdir().unwrap();
        for sector_size in [512, 4096] {
            let device = LoopDevice::new(folder.path(), 3 << 20, sector_size);
            let name = device.path().file_name().unwrap().to_str().unwrap();
            let queue = format!("/sys/block/{name}/queue/logical_block_size");
            assert_eq!(std::fs::read_to_string(queue).unwrap().trim(), sector_size.to_string());
            assert!(disk::begins_with_only(&[DIRT], device.path(), device.bytes()));
            File::options()
                .write(true)
                .open(device.path())
                .unwrap()
                .write_all_at(b"x", (3 << 20) - 1)
                .unwrap();
            assert!(!disk::begins_with_only(&[DIRT], device.path(), device.bytes()));
        }
    }
}
