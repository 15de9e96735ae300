//! Directories that are accessed through a descriptor. Operations below such a directory can
//! neither leave it nor follow a symbolic link.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps,
    UTIME_OMIT, accessat, chmodat, fchmod, linkat, mkdirat, mknodat, openat, renameat,
    renameat_with, statat, symlinkat, syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;

use stream::error::{TargetError, TargetRefusedError};
use stream::storage::Inode;
use tar::TarTimestamp;
use tar::printable_name;

/// Mode bits that a directory needs while its content is changed: all rights for the owner.
pub(super) const WORKABLE: u32 = 0o700;

/// The fields of an entry's `stat` result that are needed here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Status {
    pub(super) inode: Inode,
    pub(super) file_type: FileType,
    pub(super) attributes: Attributes,
}

impl Status {
    pub(super) fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    pub(super) fn is_symlink(&self) -> bool {
        self.file_type == FileType::Symlink
    }
}

impl From<Stat> for Status {
    fn from(stat: Stat) -> Self {
        Self {
            inode: Inode::from(&stat),
            file_type: FileType::from_raw_mode(stat.st_mode),
            attributes: Attributes {
                mode: stat.st_mode & 0o7777,
                mtime: Some(TarTimestamp {
                    seconds: stat.st_mtime,
                    nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
                }),
            },
        }
    }
}

/// Attributes that are restored in addition to the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    /// Modification time. `None` keeps the time that the filesystem sets.
    pub(super) mtime: Option<TarTimestamp>,
}

/// An open directory. Its methods take names that are single path components.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    /// The path, used only in messages.
    path: PathBuf,
}

impl Directory {
    /// Opens a directory that the user named. Symbolic links in `path` are followed, since the
    /// user chose them.
    pub(super) fn open(path: &Path) -> Result<Self, TargetError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| TargetError::new("open", path, errno.into()))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens a subdirectory. Symbolic links are not followed.
    pub(super) fn open_child(&self, name: &[u8]) -> Result<Self, TargetError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            openat(&self.fd, name, flags, Mode::empty()).map_err(self.map_errno("open", name))?;
        Ok(Self { fd, path: self.path_of(name) })
    }

    /// Opens a subdirectory that this program created. If its current mode, `mode`, does not
    /// permit that, the mode is changed first.
    pub(super) fn open_child_for_work(&self, name: &[u8], mode: u32) -> Result<Self, TargetError> {
        if mode & WORKABLE != WORKABLE {
            self.set_mode(name, mode | WORKABLE)?;
        }
        self.open_child(name)
    }

    /// Returns the status of `name` without following a symbolic link; `None` if `name` does not
    /// exist.
    pub(super) fn entry_status(&self, name: &[u8]) -> Result<Option<Status>, TargetError> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.map_errno("stat", name)(errno)),
        }
    }

    /// Lists the names in this directory, without `.` and `..`. The names are read while the
    /// iterator advances.
    pub(super) fn entry_names(
        &self,
    ) -> Result<impl Iterator<Item = Result<Vec<u8>, TargetError>>, TargetError> {
        let failed = |errno: Errno| TargetError::new("list", &self.path, errno.into());
        // `read_from` opens the directory again, so that two listings do not share one position.
        let entries = Dir::read_from(&self.fd).map_err(failed)?;
        let names =
            entries.map(move |entry| Ok(entry.map_err(failed)?.file_name().to_bytes().to_vec()));
        Ok(names.filter(|name| !matches!(name.as_deref(), Ok(b"." | b".."))))
    }

    pub(super) fn create_directory(&self, name: &[u8], mode: u32) -> Result<(), TargetError> {
        mkdirat(&self.fd, name, Mode::from_bits_truncate(mode))
            .map_err(self.map_errno("create", name))
    }

    /// Opens a file, or creates it with permissions for the owner only. If `is_new` is true, fails
    /// if `name` exists.
    pub(super) fn create_file(&self, name: &[u8], is_new: bool) -> Result<File, TargetError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (flags, action) =
            if is_new { (flags | OFlags::EXCL, "create") } else { (flags, "open") };
        openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(self.map_errno(action, name))
    }

    pub(super) fn create_symlink(&self, name: &[u8], target: &[u8]) -> Result<(), TargetError> {
        symlinkat(target, &self.fd, name).map_err(self.map_errno("create", name))
    }

    pub(super) fn create_fifo(&self, name: &[u8]) -> Result<(), TargetError> {
        mknodat(&self.fd, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .map_err(self.map_errno("create", name))
    }

    /// Creates the hard link `name` to `from/old`. If that is a symbolic link, it is not followed.
    pub(super) fn create_link(
        &self,
        name: &[u8],
        from: &Self,
        old: &[u8],
    ) -> Result<(), TargetError> {
        linkat(&from.fd, old, &self.fd, name, AtFlags::empty())
            .map_err(self.map_errno("link", name))
    }

    pub(super) fn remove_file(&self, name: &[u8]) -> Result<(), TargetError> {
        unlinkat(&self.fd, name, AtFlags::empty()).map_err(self.map_errno("remove", name))
    }

    /// Removes an empty directory. Returns `false` if it is not empty.
    pub(super) fn remove_directory(&self, name: &[u8]) -> Result<bool, TargetError> {
        match unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            // POSIX allows both errors for a directory that is not empty (rmdir).
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(errno) => Err(self.map_errno("remove", name)(errno)),
        }
    }

    /// Removes `name`, a file or a directory with everything below it. Succeeds if it does not
    /// exist.
    pub(super) fn remove_all(&self, name: &[u8]) -> Result<(), TargetError> {
        match self.entry_status(name)? {
            None => Ok(()),
            Some(status) if status.is_directory() => {
                let child = self.open_child_for_work(name, status.attributes.mode)?;
                child.clear_entries(|name| child.remove_all(name))?;
                self.remove_directory(name).map(|_| ())
            }
            Some(_) => self.remove_file(name),
        }
    }

    /// Calls `remove` for each name in this directory. This is repeated until the directory is
    /// empty, because a filesystem may skip names in a listing while other names are removed.
    pub(super) fn clear_entries(
        &self,
        remove: impl Fn(&[u8]) -> Result<(), TargetError>,
    ) -> Result<(), TargetError> {
        while self.entry_names()?.next().is_some() {
            for name in self.entry_names()? {
                remove(&name?)?;
            }
        }
        Ok(())
    }

    /// Moves `name` to another directory, under the same name. Without `replaces` the name must
    /// not exist there. On filesystems that cannot check that during the rename, it is checked
    /// before.
    pub(super) fn move_entry(
        &self,
        name: &[u8],
        to: &Self,
        replaces: bool,
    ) -> Result<(), TargetError> {
        let rename = || renameat(&self.fd, name, &to.fd, name);
        let moved = if replaces {
            rename()
        } else {
            match renameat_with(&self.fd, name, &to.fd, name, RenameFlags::NOREPLACE) {
                // EINVAL: the filesystem does not support `RENAME_NOREPLACE` (NFS). ENOSYS: the
                // kernel does not support `renameat2` (rename(2)).
                Err(Errno::INVAL | Errno::NOSYS) => match to.entry_status(name)? {
                    Some(_) => Err(Errno::EXIST),
                    None => rename(),
                },
                other => other,
            }
        };
        moved.map_err(to.map_errno("move into place", name))
    }

    /// Opens the directory `name` and runs `work` on it. If its current mode, `mode`, does not
    /// permit that, the mode is changed first and restored afterwards.
    pub(super) fn with_child<T>(
        &self,
        name: &[u8],
        mode: u32,
        work: impl FnOnce(&Self) -> Result<T, TargetError>,
    ) -> Result<T, TargetError> {
        let done = self.open_child_for_work(name, mode).and_then(|child| work(&child));
        if mode & WORKABLE != WORKABLE {
            self.set_mode(name, mode)?;
        }
        done
    }

    /// Fails unless this process may create and remove names in this directory.
    pub(super) fn check_writable(&self) -> Result<(), TargetError> {
        accessat(&self.fd, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())
            .map_err(|errno| TargetError::new("write to", &self.path, errno.into()))
    }

    /// Returns the error for an `action` on this directory that was refused.
    pub(super) fn refusal_error(
        &self,
        action: &'static str,
        refusal: TargetRefusedError,
    ) -> TargetError {
        TargetError::from_refusal(action, &self.path, refusal)
    }

    /// Sets the permissions of an entry that is not a symbolic link.
    pub(super) fn set_mode(&self, name: &[u8], mode: u32) -> Result<(), TargetError> {
        // Through a descriptor, because the sandbox of root allows no chmod(2) of a name. Without
        // NONBLOCK, opening a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::from_bits_truncate(mode);
        let changed = match name {
            // An error of opening must not look like one of changing: see `apply_attributes`.
            b"." => fchmod(&self.fd, mode),
            _ => match openat(&self.fd, name, flags, Mode::empty()) {
                Ok(entry) => fchmod(entry, mode),
                // Only root can open what its owner may not read.
                Err(Errno::ACCESS) => chmodat(&self.fd, name, mode, AtFlags::empty()),
                Err(other) => Err(other),
            },
        };
        changed.map_err(self.map_errno("change permissions of", name))
    }

    pub(super) fn set_mtime(&self, name: &[u8], mtime: TarTimestamp) -> Result<(), TargetError> {
        utimensat(&self.fd, name, &to_timestamps(mtime), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(self.map_errno("set the time of", name))
    }

    /// Sets the mode, then the time, of an entry that is not a symbolic link.
    pub(super) fn set_attributes(
        &self,
        name: &[u8],
        attributes: Attributes,
    ) -> Result<(), TargetError> {
        self.set_mode(name, attributes.mode)?;
        match attributes.mtime {
            Some(mtime) => self.set_mtime(name, mtime),
            None => Ok(()),
        }
    }

    /// Applies the mode and time that the archive contains for this directory, which existed
    /// before. A directory of another user keeps its own, because only its owner can change them.
    pub(super) fn apply_attributes(&self, attributes: Attributes) -> Result<(), TargetError> {
        match self.set_attributes(b".", attributes) {
            Err(error) if error.source.kind() == ErrorKind::PermissionDenied => {
                tracing::warn!(%error, "an existing directory keeps its mode and time");
                Ok(())
            }
            other => other,
        }
    }

    /// Waits until all data of this filesystem is on the disk.
    pub(super) fn sync_filesystem(&self) -> Result<(), TargetError> {
        syncfs(&self.fd).map_err(|errno| TargetError::new("fsync", &self.path, errno.into()))
    }

    /// Returns the path of `name` for messages, with unprintable characters escaped.
    pub(super) fn path_of(&self, name: &[u8]) -> PathBuf {
        self.path.join(printable_name(name))
    }

    fn map_errno(&self, action: &'static str, name: &[u8]) -> impl Fn(Errno) -> TargetError {
        move |errno| TargetError::new(action, &self.path_of(name), errno.into())
    }
}

/// Converts a modification time for `utimensat`. The access time stays unchanged.
fn to_timestamps(mtime: TarTimestamp) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() },
    }
}
