//! The files of a directory as a tar archive. It contains every entry below the directory, in the
//! order of their names.
//!
//! The result is identical to GNU tar's, byte for byte. The current path is a stack of directory
//! descriptors, each opened relative to the previous one without following links. A file that was
//! truncated is an error, even if only a hole is missing, although holes are not read.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use codec::encode::outlet::PieceOutlet;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, major, minor};
use tar::write::{self, NewEntryKind};

use super::links::HardLinks;
use super::{VolumeReadError, file};

/// The directory that ext4's `fsck` reserves for itself at the top of a volume.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Flags to open directories. If a link has replaced a directory, it is not followed.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags to open files. `NONBLOCK` avoids blocking if a pipe has replaced the file.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// A directory whose entries are cloned.
pub(crate) struct DirectorySource {
    root: OwnedFd,
    path: PathBuf,
    /// True if holes in files are preserved.
    sparse: bool,
}

impl DirectorySource {
    pub(super) fn open(path: &Path, sparse: bool) -> Result<Self, VolumeReadError> {
        // The root itself may be a symbolic link, so `NOFOLLOW` is not set.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| VolumeReadError::from_errno("open", path, errno))?;
        Ok(Self { root, path: path.to_owned(), sparse })
    }

    pub(super) fn read_into(&self, outlet: &mut PieceOutlet<'_>) -> Result<(), VolumeReadError> {
        let mut walk = DirectoryWalk { tree: self, links: HardLinks::default(), outlet };
        let mut names = list_names(self.root.as_fd(), &self.path)?;
        names.retain(|name| name.as_bytes() != LOST_AND_FOUND);
        walk.append_entries(names)?;
        let end = write::end_bytes(outlet.position());
        Ok(outlet.append_zeros(end)?)
    }
}

/// A directory that is being read.
struct DirectoryLevel {
    directory: OwnedFd,
    names: IntoIter<CString>,
    /// Length of the directory's name in the archive, including the trailing slash.
    prefix: usize,
}

struct DirectoryWalk<'t, 'o, 's> {
    tree: &'t DirectorySource,
    links: HardLinks,
    outlet: &'o mut PieceOutlet<'s>,
}

impl DirectoryWalk<'_, '_, '_> {
    /// Appends the entries `names` of the root and everything below them.
    fn append_entries(&mut self, names: Vec<CString>) -> Result<(), VolumeReadError> {
        let root = self.tree.root.as_fd();
        // A stack is used instead of recursion, because the volume determines how deep directories
        // nest.
        let mut levels: Vec<DirectoryLevel> = Vec::new();
        let mut names = names.into_iter();
        let mut path = Vec::new();
        loop {
            let (directory, next) = match levels.last_mut() {
                Some(level) => {
                    path.truncate(level.prefix);
                    (level.directory.as_fd(), level.names.next())
                }
                None => {
                    path.clear();
                    (root, names.next())
                }
            };
            match next {
                Some(name) => {
                    path.extend_from_slice(name.as_bytes());
                    if let Some(level) = self.append_entry(directory, &name, &mut path)? {
                        levels.push(level);
                    }
                }
                None if levels.pop().is_none() => return Ok(()),
                None => {}
            }
        }
    }

    /// Appends the entry `name` of `directory`. `path` is the entry's name in the archive. Returns
    /// the next level if the entry is a directory.
    fn append_entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        path: &mut Vec<u8>,
    ) -> Result<Option<DirectoryLevel>, VolumeReadError> {
        let full = self.full_path(path);
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| VolumeReadError::from_errno("stat", &full, errno))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            return self.enter_directory(directory, name, &stat, path).map(Some);
        }
        if kind == FileType::Socket {
            tracing::warn!("{} is a socket: it is not cloned", full.display());
            return Ok(None);
        }
        tracing::trace!("{}", full.display());
        // GNU tar stores each name of a device or pipe as a separate entry.
        let is_linked = matches!(kind, FileType::RegularFile | FileType::Symlink);
        if is_linked && let Some(first) = self.links.register_name(&stat, path) {
            self.append_header(path, &stat, &NewEntryKind::HardLink(&first))?;
            return Ok(None);
        }
        let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
        match kind {
            FileType::RegularFile => self.append_file(directory, name, &stat, path)?,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new())
                    .map_err(|errno| VolumeReadError::from_errno("read the link", &full, errno))?;
                self.append_header(path, &stat, &NewEntryKind::Symlink(target.as_bytes()))?;
            }
            FileType::Fifo => self.append_header(path, &stat, &NewEntryKind::Fifo)?,
            FileType::CharacterDevice => {
                self.append_header(path, &stat, &NewEntryKind::Character { major, minor })?;
            }
            FileType::BlockDevice => {
                self.append_header(path, &stat, &NewEntryKind::Block { major, minor })?;
            }
            _ => return Err(VolumeReadError::Unsupported { path: full }),
        }
        Ok(None)
    }

    fn enter_directory(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        path: &mut Vec<u8>,
    ) -> Result<DirectoryLevel, VolumeReadError> {
        let directory = open_entry(parent, name, DIRECTORY, stat, &self.full_path(path))?;
        let names = list_names(directory.as_fd(), &self.full_path(path))?;
        path.push(b'/');
        self.append_header(path, stat, &NewEntryKind::Directory)?;
        Ok(DirectoryLevel { directory, names: names.into_iter(), prefix: path.len() })
    }

    fn append_file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        path: &[u8],
    ) -> Result<(), VolumeReadError> {
        let full = self.full_path(path);
        let file = open_entry(directory, name, FILE, stat, &full)?;
        file::append_file(file.as_fd(), &full, path, stat, self.tree.sparse, self.outlet)
    }

    fn append_header(
        &mut self,
        path: &[u8],
        stat: &Stat,
        kind: &NewEntryKind<'_>,
    ) -> Result<(), VolumeReadError> {
        let meta = file::entry_attributes(stat);
        Ok(self.outlet.append_bytes(&write::encode_header(path, &meta, kind))?)
    }

    fn full_path(&self, path: &[u8]) -> PathBuf {
        self.tree.path.join(OsStr::from_bytes(path))
    }
}

/// Opens the entry whose metadata was `stat` when it was found. Fails if another file has taken
/// its place.
fn open_entry(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: OFlags,
    stat: &Stat,
    full: &Path,
) -> Result<OwnedFd, VolumeReadError> {
    let opened = rustix::fs::openat(directory, name, flags, Mode::empty())
        .map_err(|errno| VolumeReadError::from_errno("open", full, errno))?;
    let now = rustix::fs::fstat(&opened)
        .map_err(|errno| VolumeReadError::from_errno("stat", full, errno))?;
    if (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino) {
        return Err(VolumeReadError::Replaced { path: full.to_owned() });
    }
    Ok(opened)
}

/// Returns the names in a directory in sorted order.
fn list_names(directory: BorrowedFd<'_>, path: &Path) -> Result<Vec<CString>, VolumeReadError> {
    let fail = |errno| VolumeReadError::from_errno("list", path, errno);
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}
