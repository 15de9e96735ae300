//! A file that is written under a temporary name, and gets its own name when it is complete.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use datapath::error::{TargetError, TargetRefusedError};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// A file under a temporary name. Dropping it removes it.
pub(super) struct StagedFile {
    /// The temporary name; `None` once it was renamed.
    path: Option<PathBuf>,
    /// The file's own name, for messages.
    shown: PathBuf,
    file: File,
}

impl StagedFile {
    /// Creates the file `path`, which will be called `shown`. A file of this name that a killed
    /// process left is replaced.
    pub(super) fn create(path: PathBuf, shown: &Path) -> Result<Self, TargetError> {
        let failed = |action: &'static str| move |source| TargetError::new(action, shown, source);
        let create = || fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
        let file = match create() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                lock(&File::open(&path).map_err(failed("open"))?, shown)?;
                fs::remove_file(&path).map_err(failed("remove the leftover temporary file of"))?;
                create()
            }
            created => created,
        };
        let file = file.map_err(failed("create"))?;
        lock(&file, shown)?;
        Ok(Self { path: Some(path), shown: shown.to_owned(), file })
    }

    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.file.write_all_at(bytes, offset).map_err(|source| self.error("write", source))
    }

    pub(super) fn set_len(&self, length: u64) -> Result<(), TargetError> {
        self.file.set_len(length).map_err(|source| self.error("resize", source))
    }

    /// Syncs the file and renames it to `to`. With `replace`, an existing file is replaced.
    pub(super) fn publish(mut self, to: &Path, replace: bool) -> Result<(), TargetError> {
        self.file.sync_all().map_err(|source| self.error("fsync", source))?;
        let Some(path) = &self.path else {
            return Ok(());
        };
        rename(path, to, replace).map_err(|source| self.error("write", source))?;
        self.path = None;
        Ok(())
    }

    fn error(&self, action: &'static str, source: io::Error) -> TargetError {
        TargetError::new(action, &self.shown, source)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The reason for the drop is the error that is reported.
            fs::remove_file(path).ok();
        }
    }
}

fn rename(from: &Path, to: &Path, replace: bool) -> io::Result<()> {
    if replace {
        return fs::rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // NFS does not support the flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if !to.exists() => fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Err(Errno::EXIST.into()),
        renamed => Ok(renamed?),
    }
}

/// Takes the lock of `file`, or of a directory, for as long as it is open.
pub(super) fn lock(file: &File, shown: &Path) -> Result<(), TargetError> {
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => {
            Err(TargetError::new("open", shown, io::Error::other(TargetRefusedError::InUse)))
        }
        // Some filesystems do not support locks. They are written without one.
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(()),
    }
}

/// Fails as `import` does if `path` exists, unless it may be replaced.
pub(super) fn refuse_existing(path: &Path, replace: bool) -> Result<(), TargetError> {
    if replace || fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    Err(TargetError::new("create", path, Errno::EXIST.into()))
}

/// Makes the names in `directory` durable.
pub(super) fn sync_directory(directory: &Path) -> Result<(), TargetError> {
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(|source| TargetError::new("fsync", directory, source))
}
