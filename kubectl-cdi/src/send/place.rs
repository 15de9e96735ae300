//! The place of a ledger on this machine: a file of its owner alone, in a folder of its owner
//! alone.
//!
//! What is there already may be anything: a link that leads elsewhere, a pipe that never ends. It
//! is opened as what it is, looked at,
//! and left alone unless it is a plain file of this user.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, open, openat, unlinkat};

use super::ledger::cannot_be_continued;
use crate::cluster::ObjectUid;

/// The folder of all ledgers.
const FOLDER: &str = "kubectl-cdi";

/// A file that one process has at a time.
#[derive(Debug)]
pub(crate) struct LockedFile {
    folder: OwnedFd,
    name: String,
    file: File,
}

/// A file that is used already.
#[derive(Debug, thiserror::Error)]
#[error("another process is uploading to this claim (it holds {})", .0.display())]
pub(crate) struct ClaimBusyError(PathBuf);

impl LockedFile {
    /// The place of uploads to the claim with this uid, below the folder `states`; made if it is
    /// not there, `None` where there can be
    /// none.
    pub(crate) fn open(states: &Path, uid: &ObjectUid) -> Result<Option<Self>, ClaimBusyError> {
        let folder = states.join(FOLDER);
        let name = format!("{}.upload", uid.as_str());
        let path = folder.join(&name);
        let useless = |error: io::Error| {
            cannot_be_continued(format_args!("{}: {error}", path.display()));
            Ok(None)
        };
        let place = match open_locked(&folder, name) {
            Ok(place) => place,
            Err(error) => return useless(error),
        };
        match place.file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(ClaimBusyError(path)),
            Err(TryLockError::Error(error)) => useless(error),
            Ok(()) => Ok(Some(place)),
        }
    }

    /// The file, which stays locked as long as this or the place lives.
    pub(crate) fn clone_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Removes the file, which is ours as long as it is open: the upload has ended, or was never begun.
    pub(crate) fn remove_file(&self) {
        if let Err(error) = unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            tracing::debug!("cannot remove the ledger {}: {error}", self.name);
        }
    }
}

fn open_locked(path: &Path, name: String) -> io::Result<LockedFile> {
    // As the XDG Base Directory Specification wants those that are missing.
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, OFlags::RDONLY | OFlags::DIRECTORY | flags, Mode::empty())?;
    make_private(&folder, FileType::Directory, Mode::RWXU)?;
    let mode = Mode::RUSR | Mode::WUSR;
    // A pipe is opened at once, and then refused.
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | flags;
    let file = openat(&folder, &name, flags, mode)?;
    make_private(&file, FileType::RegularFile, mode)?;
    Ok(LockedFile { folder, name, file: file.into() })
}

/// Leaves what is open to its owner alone. Fails if it is not of this kind, not this user's, or a
/// file with another name elsewhere.
fn make_private(open: impl AsFd, kind: FileType, mode: Mode) -> io::Result<()> {
    let found = fstat(&open)?;
    let is_single = kind == FileType::Directory || found.st_nlink == 1;
    if FileType::from_raw_mode(found.st_mode) != kind || !is_single {
        return Err(io::Error::other("it is not a plain file or folder"));
    }
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if Mode::from_raw_mode(found.st_mode) != mode {
        fchmod(&open, mode)?;
    }
    Ok(())
}
