//! A file that is being written under its final name, and the rules for who may remove or replace
//! it.
//!
//! The alternative is to write the file under another name, or without one, and to move it into
//! place at the end. That needs no lock, but many volumes (NFS, CephFS) do not support unnamed
//! files, a dead process would leave named files behind that only a lock distinguishes from live
//! ones, and replacing a disk would take twice its space. The file therefore has its final name
//! from the beginning. Its first MiB shows that it is incomplete, and a lock on its inode shows
//! that it is being written. It is removed, replaced or declared complete only while its name
//! still leads to the same inode.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stream::error::{Error, TargetError, TargetRefusedError};
use stream::storage::Inode;

use super::place::{TargetKind, folder_of, inspect_target};
use crate::lock::{LockState, leads_to, lock_file, open_to_lock};

/// Maximum number of attempts while other processes keep replacing the file.
const ATTEMPTS: usize = 100;

/// A file that this process has created, until it is complete or removed.
#[derive(Debug)]
pub(super) struct UnfinishedFile {
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
    inode: Inode,
    /// True until the file is complete, was removed, or is left as it is. In the last two cases it
    /// can no longer become complete.
    is_growing: Mutex<bool>,
}

/// The unfinished files of this process.
#[derive(Debug)]
struct UnfinishedFiles {
    files: Vec<Weak<UnfinishedFile>>,
    /// True once the process is about to exit. No more files may be created then.
    is_closed: bool,
}

static REGISTRY: Mutex<UnfinishedFiles> =
    Mutex::new(UnfinishedFiles { files: Vec::new(), is_closed: false });

/// Removes the unfinished files of this process, even while transfers still write them. Called by
/// a process that exits without waiting for its transfers. No other file can be created
/// afterwards.
pub fn remove_unfinished() {
    end_unfinished(|file| file.remove());
}

/// Leaves the unfinished files of this process as a kill would, for a process that can continue
/// them: see [`super::VerifiedPrefix`]. No other file can be created afterwards.
pub fn leave_unfinished() {
    end_unfinished(|file| *file.is_growing.lock() = false);
}

fn end_unfinished(end: impl Fn(&UnfinishedFile)) {
    let mut registry = REGISTRY.lock();
    registry.is_closed = true;
    for file in registry.files.drain(..).filter_map(|file| file.upgrade()) {
        end(&file);
    }
}

impl UnfinishedFile {
    /// Creates the file `path`, locked and accessible only to its owner. With `replace`, first
    /// removes an existing file, unless a living process is writing it.
    pub(super) fn create(path: &Path, replace: bool) -> Result<(File, Arc<Self>), Error> {
        let folder =
            open_folder(folder_of(path)).map_err(|errno| target_error("create", path, errno))?;
        // The old file stays locked until the new one is locked, so that a second writer always
        // finds one of the two locks.
        let _old = if replace { remove_old_file(path)? } else { None };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| match source.kind() {
                // The old file was removed, so another writer has created a new one in the
                // meantime.
                ErrorKind::AlreadyExists if replace => {
                    TargetError::from_refusal("create", path, TargetRefusedError::InUse)
                }
                _ => TargetError::new("create", path, source),
            })?;
        let unfinished = Self::from_file(path, folder, &file)?;
        // Another writer may have locked the new file before this process did. That writer then
        // replaces it.
        if lock_file(&file) == LockState::Taken {
            return Err(TargetError::from_refusal("create", path, TargetRefusedError::InUse).into());
        }
        unfinished.register()?;
        Ok((file, unfinished))
    }

    /// Takes over `file` at `path`, which a dead process left. The caller holds its lock.
    pub(super) fn adopt_file(path: &Path, file: &File) -> Result<Arc<Self>, Error> {
        let folder =
            open_folder(folder_of(path)).map_err(|errno| target_error("open", path, errno))?;
        let unfinished = Self::from_file(path, folder, file)?;
        unfinished.register()?;
        Ok(unfinished)
    }

    fn from_file(path: &Path, folder: OwnedFd, file: &File) -> Result<Arc<Self>, TargetError> {
        Ok(Arc::new(Self {
            path: path.to_owned(),
            folder,
            name: path.file_name().unwrap_or_default().to_owned(),
            inode: Inode::from_file(file).map_err(|errno| target_error("stat", path, errno))?,
            is_growing: Mutex::new(true),
        }))
    }

    /// Adds the file to the registry: from now on it is removed if the process exits.
    fn register(self: &Arc<Self>) -> Result<(), Error> {
        if !self.is_in_place()? {
            return Err(
                TargetError::from_refusal("create", &self.path, TargetRefusedError::InUse).into()
            );
        }
        let mut registry = REGISTRY.lock();
        if registry.is_closed {
            self.remove();
            return Err(Error::Stopped);
        }
        registry.files.retain(|file| file.strong_count() > 0);
        registry.files.push(Arc::downgrade(self));
        Ok(())
    }

    /// Marks the file as complete; from then on it is not removed. Must be called only after all
    /// of `file` is on the disk. Fails if the name now leads to another file. Syncs the directory,
    /// so that the name survives a power failure.
    pub(super) fn mark_complete(&self, file: &File) -> Result<(), Error> {
        // Sync before locking: the sync may take long, and `remove` must not wait for it.
        self.sync_name(file)?;
        let mut is_growing = self.is_growing.lock();
        if !*is_growing {
            return Err(Error::Stopped);
        }
        if !self.is_in_place()? {
            return Err(TargetError::from_refusal(
                "complete",
                &self.path,
                TargetRefusedError::Replaced,
            )
            .into());
        }
        *is_growing = false;
        Ok(())
    }

    /// Removes the file, unless it is complete or its name leads to another file.
    ///
    /// No process of this project can take the name between the check and the removal, because
    /// that requires the lock that this process holds.
    pub(super) fn remove(&self) {
        let mut is_growing = self.is_growing.lock();
        // This is recorded even if the removal fails: the file must not be declared complete any
        // more.
        if !std::mem::replace(&mut *is_growing, false) {
            return;
        }
        let removed = self.is_in_place().and_then(|is_in_place| {
            if is_in_place {
                rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty())
                    .map_err(|errno| target_error("remove", &self.path, errno))
            } else {
                tracing::debug!(path = %self.path.display(), "another file has replaced the partial target");
                Ok(())
            }
        });
        if let Err(error) = removed {
            tracing::warn!(%error, "could not remove the partial target");
        }
    }

    /// Removes the file even if it was left for another process. Called after a failed commit: the
    /// first MiB may be there, so the file could look complete.
    pub(super) fn remove_after_commit(&self) {
        *self.is_growing.lock() = true;
        self.remove();
    }

    fn is_in_place(&self) -> Result<bool, TargetError> {
        match rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Inode::from(&stat) == self.inode),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(target_error("stat", &self.path, errno)),
        }
    }

    fn sync_name(&self, file: &File) -> Result<(), TargetError> {
        let synced = match rustix::fs::fsync(&self.folder) {
            // The directory cannot be read, or its filesystem cannot sync directories: sync the
            // whole filesystem instead.
            Err(Errno::BADF | Errno::INVAL | Errno::NOTSUP) => rustix::fs::syncfs(file),
            other => other,
        };
        synced.map_err(|errno| target_error("fsync the folder of", &self.path, errno))
    }
}

/// Removes the file that a dead attempt left at `path`. A file that a running process is writing
/// is kept, and so is everything that is not a regular file; opening the disk rejects those later.
pub fn remove_stale(path: &Path) {
    if let Err(error) = remove_old_file(path) {
        tracing::warn!(%error, "could not remove the disk of an earlier attempt");
    }
}

/// Removes the file at `path` if it exists and no process of this project is writing it. The
/// returned file keeps its lock.
fn remove_old_file(path: &Path) -> Result<Option<File>, TargetError> {
    for _ in 0..ATTEMPTS {
        if inspect_target(path)? != TargetKind::File {
            return Ok(None);
        }
        let old = match open_to_lock(path) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            // A file that cannot be opened for reading is replaced, as on filesystems without
            // locks. If another process is writing it, that process finds at the end that the name
            // leads to another file.
            Err(error) => {
                tracing::debug!(%error, "cannot tell whether the old file is being written");
                None
            }
        };
        if let Some(old) = &old {
            if lock_file(old) == LockState::Taken {
                return Err(TargetError::from_refusal("replace", path, TargetRefusedError::InUse));
            }
            // Another writer may have replaced the file before it was locked here.
            if !leads_to(path, old) {
                continue;
            }
        }
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(TargetError::new("remove", path, error))
            }
            _ => Ok(old),
        };
    }
    Err(TargetError::from_refusal("replace", path, TargetRefusedError::InUse))
}

/// Opens a directory. Without read permission the directory can still be used, but not synced.
fn open_folder(path: &Path) -> Result<OwnedFd, Errno> {
    let open =
        |flags| rustix::fs::open(path, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    match open(OFlags::RDONLY) {
        Err(Errno::ACCESS) => open(OFlags::PATH),
        other => other,
    }
}

fn target_error(action: &'static str, path: &Path, errno: Errno) -> TargetError {
    TargetError::new(action, path, io::Error::from(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(
        path: &Path,
        replace: bool,
    ) -> Result<(File, Arc<UnfinishedFile>), Option<TargetRefusedError>> {
        UnfinishedFile::create(path, replace).map_err(|error| match error {
            Error::Target(error) => error.refusal_reason().cloned(),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn a_file_is_replaced_only_when_nobody_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let (file, unfinished) = create(&path, true).unwrap();
        for replace in [false, true] {
            let refusal = create(&path, replace).unwrap_err();
            assert_eq!(refusal, replace.then_some(TargetRefusedError::InUse));
        }
        // The refused attempt did not remove the file.
        assert!(unfinished.is_in_place().unwrap());
        drop(file);
        create(&path, false).unwrap_err();
        create(&path, true).unwrap();
        assert!(!unfinished.is_in_place().unwrap());
    }

    #[test]
    fn a_file_that_replaced_ours_is_neither_removed_nor_completed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("disk"), folder.path().join("other"));
        let (file, unfinished) = create(&path, false).unwrap();
        std::fs::write(&other, "not ours").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let Err(Error::Target(error)) = unfinished.mark_complete(&file) else {
            panic!("it was completed")
        };
        assert_eq!(error.refusal_reason(), Some(&TargetRefusedError::Replaced));
        unfinished.remove();
        assert_eq!(std::fs::read(&path).unwrap(), b"not ours");
    }

    #[test]
    fn a_complete_file_stays_and_a_removed_file_is_not_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let (file, unfinished) = create(&path, false).unwrap();
        unfinished.mark_complete(&file).unwrap();
        unfinished.remove();
        assert!(path.exists());
        let (file, unfinished) = create(&folder.path().join("second"), false).unwrap();
        unfinished.remove();
        assert!(!folder.path().join("second").exists());
        assert!(matches!(unfinished.mark_complete(&file), Err(Error::Stopped)));
        let path = folder.path().join("left");
        let (file, unfinished) = create(&path, false).unwrap();
        *unfinished.is_growing.lock() = false;
        unfinished.remove();
        assert!(path.exists() && unfinished.mark_complete(&file).is_err());
        unfinished.remove_after_commit();
        assert!(!path.exists());
    }

    #[test]
    fn the_target_may_be_a_file_name_without_a_folder() {
        assert_eq!(folder_of(Path::new("disk")), Path::new("."));
    }
}
