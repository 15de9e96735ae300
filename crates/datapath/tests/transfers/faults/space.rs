//! The filesystem of the target is full.

use std::path::{Path, PathBuf};

use datapath::disk;
use stream::Error;
use tempfile::TempDir;
use testkit::images::{Compression, Content, Spec};
use testkit::tmpfs::Tmpfs;

use crate::common::objects::image;
use crate::common::{Memory, fast_folder, file, noise, transfer};

/// A small filesystem in memory.
struct SmallFilesystem {
    /// First, so that it is unmounted before its folder is removed.
    _mount: Tmpfs,
    folder: TempDir,
}

impl SmallFilesystem {
    fn new(bytes: usize) -> Self {
        let folder = fast_folder();
        Self { _mount: Tmpfs::on(folder.path(), bytes as u64), folder }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(self.folder.path()).unwrap().next().is_none()
    }
}

fn assert_no_space(source: &Memory, target: &disk::DiskOptions, filesystem: &SmallFilesystem) {
    let error = transfer(source, target).unwrap_err();
    let Error::Target(error) = error else { panic!("{error}") };
    assert!(error.is_no_space(), "{error}");
    assert!(error.to_string().ends_with("no space left on device"), "{error}");
    assert!(filesystem.is_empty(), "the partial target is left");
}

const MIB: usize = 1 << 20;

#[test]
#[ignore = "root: mounts"]
fn a_full_filesystem_is_reported_and_leaves_nothing() {
    let folder = fast_folder();
    let filesystem = SmallFilesystem::new(2 * MIB);
    let target = file(&filesystem.target());
    let preallocated = disk::DiskOptions { preallocate: true, ..target.clone() };
    let raw = noise(4 * MIB, 3);
    let images = [Compression::Plain, Compression::Zlib, Compression::Zstd].map(|compression| {
        let spec = Spec { compression, virtual_size: 4 << 20, ..Spec::new(Content::Dense) };
        image(&spec, folder.path()).bytes
    });
    for ranged in [false, true] {
        for image in &images {
            let source = Memory { ranged, ..Memory::new(image.clone()) };
            assert_no_space(&source, &target, &filesystem);
        }
        let source = Memory { ranged, ..Memory::new(raw.clone()) };
        assert_no_space(&source, &target, &filesystem);
        assert_no_space(&source, &preallocated, &filesystem);
    }
    // A preallocated disk grows beyond the filesystem.
    let grown = disk::DiskOptions { size: Some(4 * MIB as u64), ..preallocated };
    assert_no_space(&Memory::ranged(noise(MIB, 5)), &grown, &filesystem);
    // The first MiB, which is held back, does not fit.
    let filesystem = SmallFilesystem::new(MIB / 2);
    assert_no_space(&Memory::new(noise(MIB, 5)), &file(&filesystem.target()), &filesystem);
}

#[test]
#[ignore = "root: mounts"]
fn a_sparse_disk_needs_only_space_for_its_data() {
    let filesystem = SmallFilesystem::new(2 * MIB);
    let mut raw = vec![0; 8 * MIB];
    raw[7 * MIB..][..MIB / 2].copy_from_slice(&noise(MIB / 2, 9));
    let target = disk::DiskOptions { size: Some(64 * MIB as u64), ..file(&filesystem.target()) };
    let report = transfer(&Memory::new(raw.clone()), &target).unwrap();
    assert_eq!(report.disk_size, 64 * MIB as u64);
    raw.resize(64 * MIB, 0);
    assert!(std::fs::read(Path::new(&target.path)).unwrap() == raw);
}
