//! The two names of a downloaded file: one while it is incomplete, and one afterwards.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use program::exit::ExitReason;
use stream::error::errno_text;

use super::unix;
use crate::error::PluginError;

/// The end of the name of an incomplete file.
const PARTIAL: &str = ".partial";

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
    pub(super) fn check_absent(&self) -> Result<(), PluginError> {
        if self.complete.symlink_metadata().is_err() {
            return Ok(());
        }
        let path = self.complete.display();
        Err(PluginError::target(format!(
            "{path} already exists: delete it, or choose another name"
        )))
    }

    /// Opens and locks the incomplete file. Another program may have put a link or a pipe in its
    /// place, which is refused.
    pub(super) fn open_partial(&self) -> Result<File, PluginError> {
        self.check_absent()?;
        let path = &self.partial;
        let fail = |error| local_error("create", path, &error);
        let file = unix::open_unlinked(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if !metadata.is_file() || !unix::has_one_name(&file) {
            return Err(PluginError::target(format!(
                "{} is not a regular file of its own: delete it, or choose another name",
                path.display()
            )));
        }
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(PluginError::target(format!(
                "another process is downloading into {}",
                path.display()
            ))),
            // Some network file systems have no locks.
            Err(TryLockError::Error(_)) | Ok(()) => Ok(file),
        }
    }
}

/// Creates the error for a failed operation on a local file.
pub(super) fn local_error(action: &str, path: &Path, error: &io::Error) -> PluginError {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let exit = if is_full { ExitReason::NoSpace } else { ExitReason::Target };
    let (path, reason) = (path.display(), errno_text(error));
    PluginError::new(exit, format!("cannot {action} {path}: {reason}"))
}
