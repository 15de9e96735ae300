//! The place of the disk, and how large it may be.

use std::path::{Path, PathBuf};

use datapath::disk::{self, CacheMode, VerifiedPrefix};
use datapath::error::TargetError;
use program::paths::PodPaths;
use program::space;

use crate::messages::ProductKind;

/// Permissions of a finished disk image: the virtual machine runs as another user of the same group.
const MODE: u32 = 0o660;

/// The wishes for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DiskRequest {
    /// Bytes that the disk should have.
    pub size: Option<u64>,
    /// Part of the volume that its filesystem keeps for itself, as a fraction of the disk.
    pub overhead: f64,
    /// Allocate every block.
    pub preallocate: bool,
    /// The part that goes through the page cache.
    pub cache: CacheMode,
}

/// The scratch volume at `folder`, if one is mounted and has room; almost no image needs it, so none is ever asked for.
pub fn scratch_volume(folder: PathBuf) -> Option<PathBuf> {
    disk::free_space(&folder).is_ok_and(|free| free > 0).then_some(folder)
}

/// The mounted target.
#[derive(Debug, Clone)]
pub struct TargetVolume {
    /// The device or the image file.
    pub path: PathBuf,
    /// True for a block device.
    pub is_device: bool,
    /// Bytes that a disk may have: those of the device; or what is free on the filesystem, capped by what
    /// was asked for.
    pub available: u64,
    /// Free bytes without that cap.
    pub free: u64,
}

impl TargetVolume {
    /// The volume of a pod, on which `made` will be. A device that exists makes it block mode.
    pub fn for_pod(paths: &PodPaths, requested: Option<u64>, made: ProductKind) -> Result<Self, TargetError> {
        let device = paths.block_device();
        match made {
            _ if device.exists() => Self::on_device(device),
            ProductKind::Disk => Self::with_new_file(paths.disk_image(), requested),
            // What is in the directory stays there.
            ProductKind::Directory => Self::on_filesystem(paths.disk_image(), requested),
            ProductKind::Delta | ProductKind::Changes => Self::with_existing_file(paths.disk_image()),
        }
    }

    /// The volume that holds `path`, which is a device or will be a file.
    pub fn for_path(path: &Path, requested: Option<u64>) -> Result<Self, TargetError> {
        if disk::is_block_device(path) {
            Self::on_device(path.to_owned())
        } else {
            Self::with_new_file(path.to_owned(), requested)
        }
    }

    fn on_device(path: PathBuf) -> Result<Self, TargetError> {
        let size = disk::device_size(&path)?;
        Ok(Self { path, is_device: true, available: size, free: size })
    }

    /// A disk image that an earlier attempt left is removed before the free space is measured, or else a second
    /// attempt would not fit.
    fn with_new_file(path: PathBuf, requested: Option<u64>) -> Result<Self, TargetError> {
        disk::remove_stale(&path);
        Self::on_filesystem(path, requested)
    }

    /// The volume that holds `path`, of whose disk a part is `kept`.
    pub fn with_kept_prefix(
        path: &Path,
        requested: Option<u64>,
        kept: &VerifiedPrefix,
    ) -> Result<Self, TargetError> {
        if disk::is_block_device(path) {
            return Self::on_device(path.to_owned());
        }
        let mut volume = Self::on_filesystem(path.to_owned(), None)?;
        // Its blocks are the disk's.
        volume.free = volume.free.saturating_add(kept.allocated_bytes());
        volume.available = requested.map_or(volume.free, |requested| requested.min(volume.free));
        Ok(volume)
    }

    /// A disk image that stays, and may grow.
    fn with_existing_file(path: PathBuf) -> Result<Self, TargetError> {
        let length =
            std::fs::metadata(&path).map_err(|source| TargetError::new("open", &path, source))?.len();
        let volume = Self::on_filesystem(path, None)?;
        Ok(Self { available: length.saturating_add(volume.free), ..volume })
    }

    fn on_filesystem(path: PathBuf, requested: Option<u64>) -> Result<Self, TargetError> {
        let free = disk::free_space(disk::folder_of(&path))?;
        let available = requested.map_or(free, |requested| requested.min(free));
        Ok(Self { path, is_device: false, available, free })
    }

    /// Options for a transferred image: it grows to what was asked for, less what the filesystem keeps.
    pub fn target_options(&self, wanted: &DiskRequest) -> disk::DiskOptions {
        let usable = space::usable_space(self.available, wanted.overhead);
        disk::DiskOptions {
            path: self.path.clone(),
            available: self.available,
            size: wanted.size.filter(|_| !self.is_device).map(|requested| requested.min(usable)),
            preallocate: wanted.preallocate,
            cache: wanted.cache,
            overwrite: true,
            mode: (!self.is_device).then_some(MODE),
        }
    }

    /// Options for a copy of another disk, which has its size already: whatever fits.
    pub fn clone_options(&self, wanted: &DiskRequest) -> disk::DiskOptions {
        disk::DiskOptions { available: self.free, size: None, ..self.target_options(wanted) }
    }

    /// Options for a blank disk of what was asked for, or of what there is.
    pub fn blank_options(&self, wanted: &DiskRequest) -> disk::DiskOptions {
        let requested = wanted.size.unwrap_or(self.available);
        if self.free < requested {
            tracing::warn!(
                "Available space less than requested size, creating blank image sized to available space: {}",
                self.free
            );
        }
        let size = requested.min(self.free);
        let size = if self.is_device { size } else { space::usable_space(size, wanted.overhead) };
        disk::DiskOptions { available: size, size: None, ..self.target_options(wanted) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: DiskRequest =
        DiskRequest { size: Some(1 << 30), overhead: 0.0, preallocate: false, cache: CacheMode::Auto };

    fn file(available: u64, free: u64) -> TargetVolume {
        TargetVolume { path: "/data/disk.img".into(), is_device: false, available, free }
    }

    #[test]
    fn a_file_grows_to_the_smaller_of_usable_and_requested() {
        let wanted = DiskRequest { overhead: 0.06, ..WANTED };
        let options = file(1 << 30, 1 << 40).target_options(&wanted);
        assert_eq!(
            (options.available, options.size, options.mode),
            (1 << 30, Some(1_012_924_416), Some(MODE))
        );
    }

    #[test]
    fn a_device_keeps_its_size_and_mode() {
        let device = TargetVolume { is_device: true, ..file(5 << 30, 5 << 30) };
        let options = device.target_options(&WANTED);
        assert_eq!((options.available, options.size, options.mode), (5 << 30, None, None));
    }

    #[test]
    fn a_blank_disk_is_what_was_asked_for_or_what_there_is() {
        assert_eq!(file(1 << 30, 1 << 40).blank_options(&WANTED).available, 1 << 30);
        assert_eq!(file(1 << 20, (1 << 20) + 5).blank_options(&WANTED).available, 1 << 20);
    }

    #[test]
    fn a_stale_image_is_removed_before_the_space_is_measured() {
        let root = tempfile::tempdir().unwrap();
        let paths = PodPaths::from_prefix(root.path().to_str());
        std::fs::create_dir(paths.data_path()).unwrap();
        std::fs::write(paths.disk_image(), b"stale").unwrap();
        let volume = TargetVolume::for_pod(&paths, Some(7), ProductKind::Directory).unwrap();
        assert!(volume.path.exists(), "a disk image may be part of a directory");
        let volume = TargetVolume::for_pod(&paths, Some(7), ProductKind::Disk).unwrap();
        assert!(!volume.is_device && !volume.path.exists());
        assert_eq!(volume.available, 7);
        assert!(volume.free > 7);
    }
}
