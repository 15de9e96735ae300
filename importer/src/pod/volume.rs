//! Where the disk goes, and how large it may be.

use std::path::PathBuf;

use daemon::paths::Paths;
use daemon::space;
use datapath::error::TargetError;
use datapath::target;

use super::config::Config;

/// Permissions of a finished disk image: the virtual machine runs as another user of the same group.
const MODE: u32 = 0o660;

/// The mounted target.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    /// The device or the image file.
    pub(super) path: PathBuf,
    pub(super) is_device: bool,
    /// Bytes that a disk may have: those of the device; or what is free on the filesystem, capped by what
    /// was asked for.
    pub(super) available: u64,
    /// What is free without that cap.
    pub(super) free: u64,
}

impl Volume {
    /// Looks at the mounted volume. A device that exists makes it block mode. A disk image that an earlier
    /// attempt left is removed before the free space is measured, or else a second attempt would not fit.
    pub(super) fn find(paths: &Paths, requested: Option<u64>) -> Result<Self, TargetError> {
        let device = paths.block_device();
        if device.exists() {
            let size = target::device_size(&device)?;
            return Ok(Self {
                path: device,
                is_device: true,
                available: size,
                free: size,
            });
        }
        let path = paths.disk_image();
        target::remove_partial(&path);
        let free = target::free_space(&paths.data())?;
        let available = requested.map_or(free, |requested| requested.min(free));
        Ok(Self {
            path,
            is_device: false,
            available,
            free,
        })
    }

    /// How to write a transferred image: it grows to what was asked for, less what the filesystem keeps.
    pub(super) fn target_options(&self, config: &Config) -> target::Options {
        let usable = space::usable_space(self.available, config.overhead);
        target::Options {
            path: self.path.clone(),
            available: self.available,
            size: config
                .image_size
                .filter(|_| !self.is_device)
                .map(|requested| requested.min(usable)),
            preallocate: config.preallocate,
            cache: config.cache,
            overwrite: true,
            mode: (!self.is_device).then_some(MODE),
        }
    }

    /// How to make a blank disk of what was asked for, or of what there is.
    pub(super) fn blank_options(&self, config: &Config) -> target::Options {
        let requested = config.image_size.unwrap_or(self.available);
        if self.free < requested {
            tracing::warn!(
                "Available space less than requested size, creating blank image sized to available space: {}",
                self.free
            );
        }
        let size = requested.min(self.free);
        let size = if self.is_device {
            size
        } else {
            space::usable_space(size, config.overhead)
        };
        target::Options {
            available: size,
            size: None,
            ..self.target_options(config)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Config {
        let basic = [
            ("IMPORTER_SOURCE", "none"),
            ("IMPORTER_IMAGE_SIZE", "1Gi"),
            ("PREALLOCATION", "false"),
        ];
        let env: HashMap<String, String> = basic
            .iter()
            .chain(pairs)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Config::read(&env).unwrap()
    }

    fn file(available: u64, free: u64) -> Volume {
        Volume {
            path: "/data/disk.img".into(),
            is_device: false,
            available,
            free,
        }
    }

    #[test]
    fn a_file_grows_to_the_smaller_of_usable_and_requested() {
        let config = config(&[("FILESYSTEM_OVERHEAD", "0.06")]);
        let options = file(1 << 30, 1 << 40).target_options(&config);
        assert_eq!(
            (options.available, options.size, options.mode),
            (1 << 30, Some(1_012_924_416), Some(MODE))
        );
    }

    #[test]
    fn a_device_keeps_its_size_and_mode() {
        let device = Volume {
            is_device: true,
            ..file(5 << 30, 5 << 30)
        };
        let options = device.target_options(&config(&[]));
        assert_eq!(
            (options.available, options.size, options.mode),
            (5 << 30, None, None)
        );
    }

    #[test]
    fn a_blank_disk_is_what_was_asked_for_or_what_there_is() {
        let config = config(&[]);
        assert_eq!(file(1 << 30, 1 << 40).blank_options(&config).available, 1 << 30);
        assert_eq!(
            file(1 << 20, (1 << 20) + 5).blank_options(&config).available,
            1 << 20
        );
    }

    #[test]
    fn a_stale_image_is_removed_before_the_space_is_measured() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::from_prefix(root.path().to_str());
        std::fs::create_dir(paths.data()).unwrap();
        std::fs::write(paths.disk_image(), b"stale").unwrap();
        let volume = Volume::find(&paths, Some(7)).unwrap();
        assert!(!volume.is_device && !volume.path.exists());
        assert_eq!(volume.available, 7);
        assert!(volume.free > 7);
    }
}
