//! Opens a file that only its owner can access, on Unix. `windows.rs` does the same on Windows.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, open, openat};

/// Opens a file in `folder` for reading and writing. Creates both if they do not exist.
pub(super) fn open_private(folder: &Path, name: &str) -> io::Result<File> {
    // The XDG Base Directory Specification requires this mode for missing directories.
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let common = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(folder, OFlags::RDONLY | OFlags::DIRECTORY | common, Mode::empty())?;
    make_private(&folder, FileType::Directory, Mode::RWXU)?;
    let mode = Mode::RUSR | Mode::WUSR;
    // With `NONBLOCK` a named pipe is opened without waiting, and is rejected by the check below.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK | common;
    let file = openat(&folder, name, flags, mode)?;
    make_private(&file, FileType::RegularFile, mode)?;
    Ok(file.into())
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
