//! The place of bytes behind their names, so that a target is never what is being read.
//!
//! Beside files and devices that are simply the same, the kernel tells in sysfs which device is a part of another, what
//! device-mapper and md devices are made of, and which file backs a loop device. Where `/sys` cannot be read, as in some
//! pods, only what `stat` tells is known.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dev, FileType, Stat, major, makedev, minor};

/// The identity of a file on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inode {
    pub(crate) device: Dev,
    number: u64,
}

impl Inode {
    /// The inode of an open file.
    pub(crate) fn of(file: impl AsFd) -> rustix::io::Result<Self> {
        rustix::fs::fstat(file).map(|stat| Self::from(&stat))
    }
}

impl From<&Stat> for Inode {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            number: stat.st_ino,
        }
    }
}

/// A place that holds bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Storage(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    File(Inode),
    Device(Dev),
}

impl Storage {
    /// The place of the bytes of an open file or device; pipes and other things hold none.
    pub fn of(file: impl AsFd) -> Option<Self> {
        Self::from_stat(&rustix::fs::fstat(file).ok()?)
    }

    /// The place of the bytes of `path`, through symbolic links.
    pub fn at(path: &Path) -> Option<Self> {
        Self::from_stat(&rustix::fs::stat(path).ok()?)
    }

    fn from_stat(stat: &Stat) -> Option<Self> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some(Self(Kind::File(stat.into()))),
            FileType::BlockDevice => Some(Self(Kind::Device(stat.st_rdev))),
            _ => None,
        }
    }

    /// The file, if it is one.
    pub(crate) fn inode(self) -> Option<Inode> {
        match self.0 {
            Kind::File(inode) => Some(inode),
            Kind::Device(_) => None,
        }
    }

    /// True if what is written to `target` may change what is read from `self`: one is the other, or is a part of it.
    /// Two parts of the same disk are not in each other's way.
    pub fn shares_bytes_with(self, target: Self) -> bool {
        let kernel = Sysfs::new("/sys/dev/block");
        // Writing a device destroys the files of the filesystem on it; writing a file destroys nothing else on its device.
        kernel.below(self.0, true).contains(&target.0) || kernel.below(target.0, false).contains(&self.0)
    }
}

/// The kernel's view of block devices.
struct Sysfs {
    devices: PathBuf,
}

impl Sysfs {
    fn new(devices: impl Into<PathBuf>) -> Self {
        Self {
            devices: devices.into(),
        }
    }

    /// `top` and all devices and files that hold its bytes.
    fn below(&self, top: Kind, with_filesystems: bool) -> BTreeSet<Kind> {
        let mut found = BTreeSet::new();
        let mut open = vec![top];
        while let Some(storage) = open.pop() {
            if !found.insert(storage) {
                continue;
            }
            match storage {
                Kind::Device(device) => open.extend(self.parts(device)),
                Kind::File(inode) if with_filesystems => open.push(Kind::Device(inode.device)),
                Kind::File(_) => {}
            }
        }
        found
    }

    /// The places that hold the bytes of a device, one step down.
    fn parts(&self, device: Dev) -> Vec<Kind> {
        let folder = self.devices.join(format!("{}:{}", major(device), minor(device)));
        let mut parts = Vec::new();
        if folder.join("partition").exists()
            && let Ok(folder) = folder.canonicalize()
        {
            // A partition's folder lies in that of its disk.
            parts.extend(folder.parent().and_then(number));
        }
        if let Ok(slaves) = fs::read_dir(folder.join("slaves")) {
            parts.extend(slaves.flatten().filter_map(|slave| number(&slave.path())));
        }
        if let Ok(file) = fs::read(folder.join("loop/backing_file")) {
            let file = file.strip_suffix(b"\n").unwrap_or(&file);
            let storage = Storage::at(Path::new(OsStr::from_bytes(file)));
            parts.extend(storage.map(|storage| storage.0));
        }
        parts
    }
}

/// The number of the device whose folder this is.
fn number(folder: &Path) -> Option<Kind> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some(Kind::Device(makedev(major.parse().ok()?, minor.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn device(major: u32, minor: u32) -> Kind {
        Kind::Device(makedev(major, minor))
    }

    /// Folders as the kernel makes them: a disk 8:0 with partitions 8:1 and 8:2, a mapping 252:0 on 8:2, a loop device 7:0
    /// over `file` and 7:1 over something that is gone, and a mapping 252:1 of itself.
    fn machine(root: &Path, file: &Path) -> Sysfs {
        let add = |path: &str, number: &str| {
            let folder = root.join("devices").join(path);
            fs::create_dir_all(folder.join("slaves")).unwrap();
            fs::write(folder.join("dev"), format!("{number}\n")).unwrap();
            fs::create_dir_all(root.join("block")).unwrap();
            symlink(&folder, root.join("block").join(number)).unwrap();
            folder
        };
        let _disk = add("sda", "8:0");
        for (name, number) in [("sda/sda1", "8:1"), ("sda/sda2", "8:2")] {
            fs::write(add(name, number).join("partition"), "1\n").unwrap();
        }
        let mapping = add("dm-0", "252:0");
        symlink("../../sda/sda2", mapping.join("slaves/sda2")).unwrap();
        let circle = add("dm-1", "252:1");
        symlink("../../dm-1", circle.join("slaves/dm-1")).unwrap();
        for (name, number, backing) in [
            ("loop0", "7:0", file.to_str().unwrap()),
            ("loop1", "7:1", "/gone (deleted)"),
        ] {
            let folder = add(name, number);
            fs::create_dir(folder.join("loop")).unwrap();
            fs::write(folder.join("loop/backing_file"), format!("{backing}\n")).unwrap();
        }
        Sysfs::new(root.join("block"))
    }

    #[test]
    fn what_is_below_a_device_is_followed_to_the_end() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let sysfs = machine(root.path(), &file);
        let file = Storage::at(&file).unwrap().0;
        for (top, expected) in [
            (device(8, 0), vec![device(8, 0)]),
            (device(8, 1), vec![device(8, 0), device(8, 1)]),
            (device(252, 0), vec![device(8, 0), device(8, 2), device(252, 0)]),
            (device(252, 1), vec![device(252, 1)]),
            (device(7, 0), vec![file, device(7, 0)]),
            (device(7, 1), vec![device(7, 1)]),
            (device(99, 9), vec![device(99, 9)]),
        ] {
            assert_eq!(sysfs.below(top, false), expected.into_iter().collect(), "{top:?}");
        }
        let Kind::File(inode) = file else { panic!("a file") };
        assert!(
            sysfs
                .below(device(7, 0), true)
                .contains(&Kind::Device(inode.device))
        );
    }

    #[test]
    fn names_of_one_file_are_one_storage() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("file"), "").unwrap();
        fs::hard_link(path("file"), path("hard")).unwrap();
        symlink("file", path("soft")).unwrap();
        fs::write(path("other"), "").unwrap();
        let file = Storage::at(&path("file")).unwrap();
        for name in ["hard", "soft"] {
            assert!(
                file.shares_bytes_with(Storage::at(&path(name)).unwrap()),
                "{name}"
            );
        }
        assert_eq!(Storage::of(fs::File::open(path("hard")).unwrap()), Some(file));
        assert!(!file.shares_bytes_with(Storage::at(&path("other")).unwrap()));
        assert_eq!(Storage::at(root.path()), None);
        assert_eq!(Storage::at(Path::new("/dev/null")), None);
    }
}
