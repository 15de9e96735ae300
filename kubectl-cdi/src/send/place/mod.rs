//! The ledger file on this machine. Only its owner can access the file and its directory.
//!
//! The path may already be occupied, for example by a symbolic link to another place or by a named
//! pipe that never ends. The file is therefore opened without following links and without
//! blocking. It is then checked, and used only if it is a regular file that belongs to this user.

#[cfg_attr(not(unix), path = "windows.rs")]
mod unix;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use program::env::{NamedStrings, ProcessEnv};

use super::ledger::cannot_be_continued;
use crate::cluster::ObjectUid;
use crate::error::PluginError;

/// Name of the directory that contains all ledgers.
const FOLDER: &str = "kubectl-cdi";

/// A file that only one process can hold at a time.
#[derive(Debug)]
pub(crate) struct LockedFile {
    path: PathBuf,
    file: File,
}

impl LockedFile {
    /// Opens and locks the file for uploads to the claim with this UID, in a directory below
    /// `states`. Both are created if they do not exist. If the file cannot be used, logs a warning
    /// and returns `None`: uploads then work, but no other process can resume them.
    pub(crate) fn open(states: &Path, uid: &ObjectUid) -> Result<Option<Self>, PluginError> {
        let name = format!("{}.upload", uid.as_str());
        let path = states.join(FOLDER).join(&name);
        match Self::open_named(states, &name) {
            Ok(file) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(PluginError::target(format!(
                "another process is uploading to this claim (it holds {})",
                path.display()
            ))),
            Err(TryLockError::Error(error)) => {
                cannot_be_continued(format_args!("{}: {error}", path.display()));
                Ok(None)
            }
        }
    }

    /// Opens and locks the file `name`. Creates it and its directory if they do not exist.
    pub(crate) fn open_named(states: &Path, name: &str) -> Result<Self, TryLockError> {
        let folder = states.join(FOLDER);
        let file = unix::open_private(&folder, name).map_err(TryLockError::Error)?;
        file.try_lock()?;
        Ok(Self { path: folder.join(name), file })
    }

    /// Duplicates the file handle. The lock is held until this object and all duplicates are
    /// dropped.
    pub(crate) fn clone_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Removes the file, which this process keeps locked as long as it is open. This is for an
    /// upload that has ended, or that never began.
    pub(crate) fn remove_file(&self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!("cannot remove the ledger {}: {error}", self.path.display());
        }
    }
}

/// Returns the user's directory for state files (XDG Base Directory Specification 0.8; on Windows
/// the local data of applications).
pub(crate) fn state_folder() -> Option<PathBuf> {
    let named = |name: &str| ProcessEnv.get(name).map(PathBuf::from);
    let given = named("XDG_STATE_HOME").filter(|path| path.is_absolute());
    given.or_else(|| {
        if cfg!(windows) {
            named("LOCALAPPDATA").filter(|path| path.is_absolute())
        } else {
            named("HOME").map(|home| home.join(".local/state"))
        }
    })
}
