//! A block device, or a file with a disk: its bytes from the first to the last.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use datapath::storage::Storage;
use rustix::fs::{Advice, FileType, Mode, OFlags, SeekFrom};

use super::copy::Open;
use super::{Outlet, SourceError};

/// A disk.
pub(crate) struct Device {
    file: OwnedFd,
    path: PathBuf,
    size: u64,
}

impl Device {
    pub(super) fn open(path: &Path) -> Result<Self, SourceError> {
        let fail = |action| move |errno| SourceError::io(action, path, errno);
        // A pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(fail("open"))?;
        let stat = rustix::fs::fstat(&file).map_err(fail("stat"))?;
        if !matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::BlockDevice | FileType::RegularFile
        ) {
            return Err(SourceError::Unsupported {
                path: path.to_owned(),
            });
        }
        let size = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(fail("find the size of"))?;
        // Only makes it faster.
        rustix::fs::fadvise(&file, 0, None, Advice::Sequential).ok();
        Ok(Self {
            file,
            path: path.to_owned(),
            size,
        })
    }

    /// Bytes of the disk.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The place of these bytes.
    pub(super) fn storage(&self) -> Option<Storage> {
        Storage::of(&self.file)
    }

    pub(super) fn read(&self, outlet: &mut Outlet<'_>) -> Result<(), SourceError> {
        let disk = Open {
            file: self.file.as_fd(),
            path: &self.path,
            size: self.size,
        };
        disk.copy(outlet)?;
        // Holes are not read, so that a file that became shorter may look like one with a hole at its end.
        let end = rustix::fs::seek(&self.file, SeekFrom::End(0))
            .map_err(|errno| SourceError::io("find the size of", &self.path, errno))?;
        if end < self.size {
            return Err(disk.shrank(end));
        }
        if end > self.size {
            let (path, size) = (self.path.display(), self.size);
            tracing::warn!("{path} grew to {end} bytes while it was read: the clone has the first {size}");
        }
        Ok(())
    }
}
