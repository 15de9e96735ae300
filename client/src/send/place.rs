//! The place of a ledger on this machine.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use super::ledger::cannot_be_continued;

/// The place of a ledger: a file that one process has at a time.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
}

/// A file that is used already.
#[derive(Debug, thiserror::Error)]
#[error("another process is uploading to this claim (it holds {})", .0.display())]
pub(crate) struct InUse(PathBuf);

impl Place {
    /// The place of uploads to the claim with this uid, below the folder `states`.
    pub(crate) fn new(states: &Path, uid: &str) -> Self {
        Self {
            path: states.join("kubectl-cdi").join(format!("{uid}.upload")),
        }
    }

    /// The file, made if it is not there; `None` where there can be none.
    pub(crate) fn open(&self) -> Result<Option<File>, InUse> {
        let open = || {
            self.path.parent().map_or(Ok(()), fs::create_dir_all)?;
            OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .open(&self.path)
        };
        let file = match open() {
            Ok(file) => file,
            Err(error) => {
                cannot_be_continued(&error);
                return Ok(None);
            }
        };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(InUse(self.path.clone())),
            Err(TryLockError::Error(error)) => {
                cannot_be_continued(&error);
                Ok(None)
            }
            Ok(()) => Ok(Some(file)),
        }
    }

    /// Removes the file, which is ours as long as it is open: the upload has ended, or was never begun.
    pub(crate) fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!("cannot remove {}: {error}", self.path.display());
        }
    }
}
