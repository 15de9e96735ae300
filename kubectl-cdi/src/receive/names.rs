//! The two names of a downloaded file: one while it is incomplete, and one afterwards.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use super::error::DownloadError;
use super::unix;

/// The end of the name of an incomplete file.
const PARTIAL: &str = ".partial";

/// The reason for not giving a file its name.
pub(super) const REPLACED: &str = "another program has replaced the incomplete file";

/// The names of a file.
pub(super) struct FileNames {
    pub(super) partial: PathBuf,
    pub(super) complete: PathBuf,
}

impl FileNames {
    /// Returns the names of the file that will be called `path`.
    pub(super) fn new(path: &Path) -> Self {
        let mut partial = path.as_os_str().to_owned();
        partial.push(PARTIAL);
        Self { partial: partial.into(), complete: path.to_owned() }
    }

    /// Fails if the complete file exists already.
    pub(super) fn check_absent(&self) -> Result<(), DownloadError> {
        match self.complete.symlink_metadata() {
            Ok(_) => Err(DownloadError::Exists(self.complete.clone())),
            Err(_) => Ok(()),
        }
    }

    /// Opens and locks the incomplete file. Another program may have put a link or a pipe in its
    /// place, which is refused.
    pub(super) fn open_partial(&self) -> Result<File, DownloadError> {
        self.check_absent()?;
        let path = &self.partial;
        let fail = |error| DownloadError::local("create", path, error);
        let file = unix::open_unlinked(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if !metadata.is_file() || !unix::has_one_name(&file) {
            return Err(DownloadError::NoFile(path.clone()));
        }
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(DownloadError::Busy(path.clone())),
            // Some network file systems have no locks.
            Err(TryLockError::Error(_)) | Ok(()) => Ok(file),
        }
    }
}
