//! The ledger file on this machine. Only its owner can access the file and its directory.
//!
//! The path may already be occupied, for example by a symbolic link to another place or by a named
//! pipe that never ends. The file is therefore opened without following links and without
//! blocking. It is then checked, and used only if it is a regular file that belongs to this user.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, open, openat, unlinkat};

use super::ledger::cannot_be_continued;
use crate::cluster::ObjectUid;

/// Name of the directory that contains all ledgers.
const FOLDER: &str = "kubectl-cdi";

/// A file that only one process can hold at a time.
#[derive(Debug)]
pub(crate) struct LockedFile {
    folder: OwnedFd,
    name: String,
    file: File,
}

/// The error for a claim to which another process is already uploading.
#[derive(Debug, thiserror::Error)]
#[error("another process is uploading to this claim (it holds {})", .0.display())]
pub(crate) struct ClaimBusyError(PathBuf);

impl LockedFile {
    /// Opens and locks the file for uploads to the claim with this UID, in a directory below
    /// `states`. Both are created if they do not exist. If the file cannot be used, logs a warning
    /// and returns `None`: uploads then work, but no other process can resume them.
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

    /// Duplicates the file handle. The lock is held until this object and all duplicates are
    /// dropped.
    pub(crate) fn clone_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Removes the file, which this process keeps locked as long as it is open. This is for an
    /// upload that has ended, or that never began.
    pub(crate) fn remove_file(&self) {
        if let Err(error) = unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            tracing::debug!("cannot remove the ledger {}: {error}", self.name);
        }
    }
}

fn open_locked(path: &Path, name: String) -> io::Result<LockedFile> {
    // The XDG Base Directory Specification requires this mode for missing directories.
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(path, OFlags::RDONLY | OFlags::DIRECTORY | flags, Mode::empty())?;
    make_private(&folder, FileType::Directory, Mode::RWXU)?;
    let mode = Mode::RUSR | Mode::WUSR;
    // With `NONBLOCK` a named pipe is opened without waiting, and is rejected by the check below.
    // With `APPEND`, the first write after a truncation goes to the beginning of the file.
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | flags;
    let file = openat(&folder, &name, flags, mode)?;
    make_private(&file, FileType::RegularFile, mode)?;
    Ok(LockedFile { folder, name, file: file.into() })
}

/// Removes other users' access to an open file or directory. Fails if its type is not `kind`, if
/// it belongs to another user, or if it is a file with more than one hard link.
fn make_private(open: impl AsFd, kind: FileType, mode: Mode) -> io::Result<()> {
    let found = fstat(&open)?;
    let is_single = kind == FileType::Directory || found.st_nlink == 1;
    if FileType::from_raw_mode(found.st_mode) != kind || !is_single {
        return Err(io::Error::other("it is not a regular file or directory"));
    }
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if Mode::from_raw_mode(found.st_mode) != mode {
        fchmod(&open, mode)?;
    }
    Ok(())
}
