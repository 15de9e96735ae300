//! The parts of a download that differ between operating systems.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::REPLACED;

/// Returns stdout without a buffer.
pub(super) fn unbuffered_stdout() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

/// Opens a file for reading and writing, and creates it if it does not exist. Links are not
/// followed.
pub(super) fn open_unlinked(path: &Path) -> io::Result<File> {
    // Without `NONBLOCK`, opening a named pipe would wait for its other end.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

/// Returns true if the file has no second name.
pub(super) fn has_one_name(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 1)
}

/// Returns true if `path` is a name of `file`.
pub(super) fn is_name_of(path: &Path, file: &File) -> bool {
    match (path.symlink_metadata(), file.metadata()) {
        (Ok(named), Ok(open)) => (named.dev(), named.ino()) == (open.dev(), open.ino()),
        _ => false,
    }
}

/// Renames `file` from `from` to `to`, which must not exist, and makes its name durable.
pub(super) fn rename_new(file: &File, from: &Path, to: &Path) -> io::Result<()> {
    if !is_name_of(from, file) {
        return Err(io::Error::other(REPLACED));
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // NFS does not support the flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => std::fs::rename(from, to)?,
        renamed => renamed?,
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Returns the name of this machine.
pub(super) fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}
