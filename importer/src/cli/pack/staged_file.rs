//! A file that is written under a temporary name, and gets its own name when it is complete.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use datapath::lock::{LockState, leads_to, lock_file, open_to_lock};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use stream::error::{TargetError, TargetRefusedError, errno_text};

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
        // The leftover stays locked until the new file is locked, so that a second writer always
        // finds one of the two locks.
        let _leftover = remove_leftover(&path, shown)?;
        let created = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
        let file = created.map_err(|source| match source.kind() {
            // Another writer has created it after the leftover was removed.
            ErrorKind::AlreadyExists => in_use("create", shown),
            _ => TargetError::new("create", shown, source),
        })?;
        lock(&file, shown)?;
        // Another writer may have taken the new file for a leftover before it was locked here.
        if !leads_to(&path, &file) {
            return Err(in_use("create", shown));
        }
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
        // Without locks, another writer may have replaced the file with its own.
        if !leads_to(path, &self.file) {
            let reason = TargetRefusedError::Replaced;
            return Err(TargetError::from_refusal("write", &self.shown, reason));
        }
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
        if let Some(path) = &self.path
            && leads_to(path, &self.file)
        {
            // The reason for the drop is the error that is reported.
            fs::remove_file(path).ok();
        }
    }
}

/// Removes the file that a killed process left at `path`. The returned file keeps its lock.
fn remove_leftover(path: &Path, shown: &Path) -> Result<Option<File>, TargetError> {
    let leftover = match open_regular(path) {
        Ok(leftover) => leftover,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let why = format!(
                "cannot use its temporary file {}: {}; remove it",
                path.display(),
                errno_text(&error)
            );
            return Err(TargetError::new("create", shown, io::Error::other(why)));
        }
    };
    lock(&leftover, shown)?;
    // Another writer may have replaced the file before it was locked here.
    if !leads_to(path, &leftover) {
        return Err(in_use("create", shown));
    }
    fs::remove_file(path).map_err(|source| {
        TargetError::new("remove the leftover temporary file of", shown, source)
    })?;
    Ok(Some(leftover))
}

/// Opens an existing regular file. Links are not followed, and a pipe is refused at once.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let file = open_to_lock(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

fn in_use(action: &'static str, shown: &Path) -> TargetError {
    TargetError::from_refusal(action, shown, TargetRefusedError::InUse)
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
    match lock_file(file) {
        LockState::Taken => Err(in_use("open", shown)),
        // Some filesystems do not support locks. They are written without one.
        LockState::Ours | LockState::Impossible => Ok(()),
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

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, mknodat};

    use super::*;

    #[test]
    fn a_temporary_file_has_one_writer_and_a_leftover_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, shown) = (folder.path().join(".staged"), folder.path().join("file"));
        fs::write(&path, "a long leftover").unwrap();
        let first = StagedFile::create(path.clone(), &shown).unwrap();
        let error = StagedFile::create(path.clone(), &shown).err().unwrap();
        assert_eq!(error.refusal_reason(), Some(&TargetRefusedError::InUse));
        first.write_at(0, b"new").unwrap();
        first.publish(&shown, false).unwrap();
        assert_eq!(fs::read(&shown).unwrap(), b"new");
        drop(StagedFile::create(path.clone(), &shown).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_took_the_name_is_neither_published_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, shown) = (folder.path().join(".staged"), folder.path().join("file"));
        let staged = StagedFile::create(path.clone(), &shown).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "half of it").unwrap();
        let error = staged.publish(&shown, false).unwrap_err();
        assert_eq!(error.refusal_reason(), Some(&TargetRefusedError::Replaced));
        assert!(!shown.exists());
        assert_eq!(fs::read(&path).unwrap(), b"half of it");
    }

    #[test]
    fn a_pipe_or_a_link_of_the_name_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        mknodat(CWD, path("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
        fs::write(path("other"), "not ours").unwrap();
        std::os::unix::fs::symlink(path("other"), path("link")).unwrap();
        for name in ["pipe", "link"] {
            let error = StagedFile::create(path(name), &path("file")).err().unwrap().to_string();
            assert!(error.contains("it is not a regular file; remove it"), "{error}");
        }
        assert_eq!(fs::read(path("other")).unwrap(), b"not ours");
    }
}
