//! The parts of a download that differ between operating systems.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

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
pub(super) fn has_one_name(metadata: &Metadata) -> bool {
    metadata.nlink() == 1
}

/// Returns the name of this machine.
pub(super) fn host_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}
