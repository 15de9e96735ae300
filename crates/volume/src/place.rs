//! The volume on which the disk is written, and the size that the disk may have.

use std::path::{Path, PathBuf};

use datapath::disk::{self, CacheMode, VerifiedPrefix};
use program::paths::PodPaths;
use program::space;
use stream::error::TargetError;

use reporting::messages::ProductKind;

/// Permissions of a finished disk image. The virtual machine runs as another user of the same
/// group, so the group may read and write.
const MODE: u32 = 0o660;

/// The properties of the disk that the user requested.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DiskRequest {
    /// Size of the disk in bytes.
    pub size: Option<u64>,
    /// Space that is reserved for the volume's filesystem, as a fraction of the image (see
    /// [`space::usable_space`]).
    pub overhead: f64,
    /// Allocate every block of the disk.
    pub preallocate: bool,
    /// Determines which writes go through the page cache.
    pub cache: CacheMode,
}

/// Returns the scratch volume at `folder`, if one is mounted and has free space. Almost no image
/// needs scratch space, so we never ask the controller for such a volume.
pub fn scratch_volume(folder: PathBuf) -> Option<PathBuf> {
    disk::free_space(&folder).is_ok_and(|free| free > 0).then_some(folder)
}

/// The mounted volume that receives the result.
#[derive(Debug, Clone)]
pub struct TargetVolume {
    /// Path of the block device or the image file.
    pub path: PathBuf,
    /// True for a block device.
    pub is_device: bool,
    /// Maximum size of a disk in bytes: the size of the device, or the free space of the
    /// filesystem, capped by the requested size.
    pub available: u64,
    /// Free bytes of the filesystem without that cap, or the size of the device.
    pub free: u64,
}

impl TargetVolume {
    /// Returns the volume of a pod, on which `made` will be written. The target is in block mode
    /// if its device node exists.
    pub fn for_pod(
        paths: &PodPaths,
        requested: Option<u64>,
        made: ProductKind,
    ) -> Result<Self, TargetError> {
        let device = paths.block_device();
        match made {
            _ if device.exists() => Self::on_device(device),
            ProductKind::Disk => Self::with_new_file(paths.disk_image(), requested),
            // A directory keeps the files that it already contains, so nothing is removed here.
            ProductKind::Directory => Self::on_filesystem(paths.disk_image(), requested),
            ProductKind::Delta | ProductKind::Changes => {
                Self::with_existing_file(paths.disk_image())
            }
        }
    }

    /// Returns the volume that holds `path`. The path is a block device, or a file that is created
    /// later.
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

    /// Prepares for a new disk image at `path`. An image left by an earlier attempt is removed
    /// before the free space is measured; otherwise a second attempt would not fit.
    fn with_new_file(path: PathBuf, requested: Option<u64>) -> Result<Self, TargetError> {
        disk::remove_stale(&path);
        Self::on_filesystem(path, requested)
    }

    /// Returns the volume that holds `path`, where the verified prefix `kept` of an earlier disk
    /// is reused.
    pub fn with_kept_prefix(
        path: &Path,
        requested: Option<u64>,
        kept: &VerifiedPrefix,
    ) -> Result<Self, TargetError> {
        if disk::is_block_device(path) {
            return Self::on_device(path.to_owned());
        }
        let mut volume = Self::on_filesystem(path.to_owned(), None)?;
        // The blocks of the kept prefix become part of the new disk, so they count as free.
        volume.free = volume.free.saturating_add(kept.allocated_bytes());
        volume.available = requested.map_or(volume.free, |requested| requested.min(volume.free));
        Ok(volume)
    }

    /// Returns the volume of an existing disk image that is changed in place and may grow.
    fn with_existing_file(path: PathBuf) -> Result<Self, TargetError> {
        let length = std::fs::metadata(&path)
            .map_err(|source| TargetError::new("open", &path, source))?
            .len();
        let volume = Self::on_filesystem(path, None)?;
        Ok(Self { available: length.saturating_add(volume.free), ..volume })
    }

    fn on_filesystem(path: PathBuf, requested: Option<u64>) -> Result<Self, TargetError> {
        let free = disk::free_space(disk::folder_of(&path))?;
        let available = requested.map_or(free, |requested| requested.min(free));
        Ok(Self { path, is_device: false, available, free })
    }

    /// Returns options for a transferred image. The disk grows to the requested size, minus the
    /// filesystem's share.
    pub fn target_options(&self, wanted: &DiskRequest) -> disk::DiskOptions {
        let usable = space::usable_space(self.available, wanted.overhead);
        disk::DiskOptions {
            size: wanted.size.filter(|_| !self.is_device).map(|requested| requested.min(usable)),
            preallocate: wanted.preallocate,
            cache: wanted.cache,
            overwrite: true,
            mode: (!self.is_device).then_some(MODE),
            ..disk::DiskOptions::new(&self.path, self.available)
        }
    }

    /// Returns options for a copy of another disk, which already has its final size. The copy may
    /// use all free space. CDI makes the claim for a clone of a block device too small for the
    /// whole disk in a file, so only what is stored counts, unless all of it must be.
    pub fn clone_options(&self, wanted: &DiskRequest) -> disk::DiskOptions {
        disk::DiskOptions {
            available: self.free,
            counts_stored: !wanted.preallocate,
            size: None,
            ..self.target_options(wanted)
        }
    }

    /// Returns options for a blank disk of the requested size, or of all available space if that
    /// is smaller.
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

    const WANTED: DiskRequest = DiskRequest {
        size: Some(1 << 30),
        overhead: 0.0,
        preallocate: false,
        cache: CacheMode::Auto,
    };

    fn file(available: u64, free: u64) -> TargetVolume {
        TargetVolume { path: "/data/disk.img".into(), is_device: false, available, free }
    }

    #[test]
    fn a_file_grows_and_a_device_keeps_its_size_and_mode() {
        // The smaller one of usable and requested.
        let wanted = DiskRequest { overhead: 0.06, ..WANTED };
        let options = file(1 << 30, 1 << 40).target_options(&wanted);
        assert_eq!(
            (options.available, options.size, options.mode),
            (1 << 30, Some(1_012_924_416), Some(MODE))
        );
        let device = TargetVolume { is_device: true, ..file(5 << 30, 5 << 30) };
        let options = device.target_options(&WANTED);
        assert_eq!((options.available, options.size, options.mode), (5 << 30, None, None));
        // A blank disk has the requested size, or the size of the volume.
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
