//! The files of a directory as a tar: every entry below it, in the order of their names.
//!
//! The result is GNU tar's to the byte. Directories are a stack of descriptors, each opened in the one before without
//! following links. A file that became shorter is an error also where only a hole went missing, which is not read.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use datapath::archive::write::{self, Kind, Meta};
use datapath::encode::outlet::Outlet;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, major, minor};

use super::links::Links;
use super::{SourceError, file};

/// The folder that `fsck` of ext4 keeps for itself, at the top of a volume.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Flags for directories: no link that has taken the place of one is followed.
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Flags for files; one that became a pipe must not make us wait.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// A directory whose entries are cloned.
pub(crate) struct Tree {
    root: OwnedFd,
    path: PathBuf,
    /// Holes of files stay holes.
    sparse: bool,
}

impl Tree {
    pub(super) fn open(path: &Path, sparse: bool) -> Result<Self, SourceError> {
        // The root itself may be a link.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| SourceError::io("open", path, errno))?;
        Ok(Self {
            root,
            path: path.to_owned(),
            sparse,
        })
    }

    pub(super) fn read(&self, outlet: &mut Outlet<'_>) -> Result<(), SourceError> {
        let mut walk = Walk {
            tree: self,
            links: Links::default(),
            outlet,
        };
        let mut names = list(self.root.as_fd(), &self.path)?;
        names.retain(|name| name.as_bytes() != LOST_AND_FOUND);
        walk.all(names)?;
        let end = write::end_bytes(outlet.position());
        Ok(outlet.zeros(end)?)
    }
}

/// A directory on the way down.
struct Level {
    directory: OwnedFd,
    names: IntoIter<CString>,
    /// The length of the name in the archive, with the slash behind it.
    prefix: usize,
}

struct Walk<'t, 'o, 's> {
    tree: &'t Tree,
    links: Links,
    outlet: &'o mut Outlet<'s>,
}

impl Walk<'_, '_, '_> {
    /// Appends the entries `names` of the root and what is below them.
    fn all(&mut self, names: Vec<CString>) -> Result<(), SourceError> {
        let root = self.tree.root.as_fd();
        // A stack, not recursion: how deep directories nest is up to the volume.
        let mut levels: Vec<Level> = Vec::new();
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
                    if let Some(level) = self.entry(directory, &name, &mut path)? {
                        levels.push(level);
                    }
                }
                None if levels.pop().is_none() => return Ok(()),
                None => {}
            }
        }
    }

    /// Appends the entry `name` of `directory`, which is `path` in the archive. A directory is to be entered.
    fn entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        path: &mut Vec<u8>,
    ) -> Result<Option<Level>, SourceError> {
        let full = self.full(path);
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| SourceError::io("stat", &full, errno))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            return self.enter(directory, name, &stat, path).map(Some);
        }
        if kind == FileType::Socket {
            tracing::warn!("{} is a socket: it is not cloned", full.display());
            return Ok(None);
        }
        tracing::trace!("{}", full.display());
        // GNU tar makes each name of a device or pipe one of its own.
        let is_linked = matches!(kind, FileType::RegularFile | FileType::Symlink);
        if is_linked && let Some(first) = self.links.meet(&stat, path) {
            self.header(path, &stat, &Kind::HardLink(&first))?;
            return Ok(None);
        }
        let device = (major(stat.st_rdev), minor(stat.st_rdev));
        match kind {
            FileType::RegularFile => self.file(directory, name, &stat, path)?,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new())
                    .map_err(|errno| SourceError::io("read the link", &full, errno))?;
                self.header(path, &stat, &Kind::Symlink(target.as_bytes()))?;
            }
            FileType::Fifo => self.header(path, &stat, &Kind::Fifo)?,
            FileType::CharacterDevice => {
                let (major, minor) = device;
                self.header(path, &stat, &Kind::Character { major, minor })?;
            }
            FileType::BlockDevice => {
                let (major, minor) = device;
                self.header(path, &stat, &Kind::Block { major, minor })?;
            }
            _ => return Err(SourceError::Unsupported { path: full }),
        }
        Ok(None)
    }

    fn enter(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        path: &mut Vec<u8>,
    ) -> Result<Level, SourceError> {
        let directory = open(parent, name, DIRECTORY, stat, &self.full(path))?;
        let names = list(directory.as_fd(), &self.full(path))?;
        path.push(b'/');
        self.header(path, stat, &Kind::Directory)?;
        Ok(Level {
            directory,
            names: names.into_iter(),
            prefix: path.len(),
        })
    }

    fn file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        path: &[u8],
    ) -> Result<(), SourceError> {
        let full = self.full(path);
        let file = open(directory, name, FILE, stat, &full)?;
        let sparse = self.tree.sparse;
        file::append(file.as_fd(), &full, path, &meta(stat), stat, sparse, self.outlet)
    }

    fn header(&mut self, path: &[u8], stat: &Stat, kind: &Kind<'_>) -> Result<(), SourceError> {
        Ok(self.outlet.bytes(&write::header(path, &meta(stat), kind))?)
    }

    fn full(&self, path: &[u8]) -> PathBuf {
        self.tree.path.join(OsStr::from_bytes(path))
    }
}

/// Opens what was seen as `stat`, and nothing that has taken its place.
fn open(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: OFlags,
    stat: &Stat,
    full: &Path,
) -> Result<OwnedFd, SourceError> {
    let opened = rustix::fs::openat(directory, name, flags, Mode::empty())
        .map_err(|errno| SourceError::io("open", full, errno))?;
    let now = rustix::fs::fstat(&opened).map_err(|errno| SourceError::io("stat", full, errno))?;
    if (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino) {
        return Err(SourceError::Replaced {
            path: full.to_owned(),
        });
    }
    Ok(opened)
}

/// The names in a directory, in order.
fn list(directory: BorrowedFd<'_>, path: &Path) -> Result<Vec<CString>, SourceError> {
    let fail = |errno| SourceError::io("list", path, errno);
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

fn meta(stat: &Stat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: stat.st_mtime,
    }
}
