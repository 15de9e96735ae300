//! Finds out where the bytes behind a name are stored, so that a target is never the source that
//! is being read.
//!
//! Besides identical files and devices, the kernel shows in sysfs which disk a partition belongs
//! to and which file backs a loop device. Where `/sys` cannot be read, as in some pods, only the
//! result of `stat` is used. A device with a mounted filesystem, or with device-mapper or md
//! devices on it, needs no check: targets are opened exclusively, and the kernel refuses that for
//! such a device.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dev, FileType, Stat, major, makedev, minor};

/// The identity of a file on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    /// The device that holds its filesystem.
    pub device: Dev,
    number: u64,
}

impl Inode {
    /// The inode of an open file.
    pub fn from_file(file: impl AsFd) -> rustix::io::Result<Self> {
        rustix::fs::fstat(file).map(|stat| Self::from(&stat))
    }
}

impl From<&Stat> for Inode {
    fn from(stat: &Stat) -> Self {
        Self { device: stat.st_dev, number: stat.st_ino }
    }
}

/// A file or block device that stores bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageLocation(StorageKind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StorageKind {
    File(Inode),
    Device(Dev),
}

impl StorageLocation {
    /// The location of the bytes of an open file or device. `None` for pipes and everything else
    /// that stores no bytes.
    pub fn from_file(file: impl AsFd) -> Option<Self> {
        Self::from_stat(&rustix::fs::fstat(file).ok()?)
    }

    /// The location of the bytes of `path`. Follows symbolic links.
    pub fn from_path(path: &Path) -> Option<Self> {
        Self::from_stat(&rustix::fs::stat(path).ok()?)
    }

    fn from_stat(stat: &Stat) -> Option<Self> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some(Self(StorageKind::File(stat.into()))),
            FileType::BlockDevice => Some(Self(StorageKind::Device(stat.st_rdev))),
            _ => None,
        }
    }

    /// The inode, if the location is a file.
    pub fn file_inode(self) -> Option<Inode> {
        match self.0 {
            StorageKind::File(inode) => Some(inode),
            StorageKind::Device(_) => None,
        }
    }

    /// True if writing to `target` may change what is read from `self`: both are the same, or one
    /// is a part of the other. Two partitions of the same disk do not affect each other.
    pub fn shares_bytes_with(self, target: Self) -> bool {
        self.backing_chain().any(|place| place == target)
            || target.backing_chain().any(|place| place == self)
    }

    /// This location, the one that stores its bytes, and so on. The name of a backing file may
    /// mean a different file here, even the device itself, so the number of steps is limited.
    fn backing_chain(self) -> impl Iterator<Item = Self> {
        const MAX_PLACES: usize = 16;
        std::iter::successors(Some(self), |place| place.backing_storage()).take(MAX_PLACES)
    }

    /// The disk of a partition, or the backing file of a loop device.
    fn backing_storage(self) -> Option<Self> {
        let Self(StorageKind::Device(device)) = self else {
            return None;
        };
        let folder = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
        if folder.join("partition").exists() {
            // In sysfs a partition's directory lies inside the directory of its disk.
            let number = fs::read_to_string(folder.join("../dev")).ok()?;
            let (major, minor) = number.trim_end().split_once(':')?;
            let disk = makedev(major.parse().ok()?, minor.parse().ok()?);
            return Some(Self(StorageKind::Device(disk)));
        }
        let file = fs::read(folder.join("loop/backing_file")).ok()?;
        let file = file.strip_suffix(b"\n").unwrap_or(&file);
        Self::from_path(Path::new(OsStr::from_bytes(file)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn all_names_of_a_file_are_the_same_storage() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("file"), "").unwrap();
        fs::hard_link(path("file"), path("hard")).unwrap();
        symlink("file", path("soft")).unwrap();
        fs::write(path("other"), "").unwrap();
        let file = StorageLocation::from_path(&path("file")).unwrap();
        for name in ["hard", "soft"] {
            assert!(
                file.shares_bytes_with(StorageLocation::from_path(&path(name)).unwrap()),
                "{name}"
            );
        }
        assert_eq!(StorageLocation::from_file(fs::File::open(path("hard")).unwrap()), Some(file));
        assert!(!file.shares_bytes_with(StorageLocation::from_path(&path("other")).unwrap()));
        assert_eq!(StorageLocation::from_path(root.path()), None);
        assert_eq!(StorageLocation::from_path(Path::new("/dev/null")), None);
    }
}
