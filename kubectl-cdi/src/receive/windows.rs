//! The parts of a download that differ between operating systems, on Windows. `unix.rs` describes
//! the functions.

use std::fs::{File, Metadata};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsHandle;
use std::path::Path;

use program::env::{NamedStrings, ProcessEnv};

/// Opens a link itself, not the file to which it leads (FILE_FLAG_OPEN_REPARSE_POINT of
/// CreateFileW).
const OPEN_LINK: u32 = 0x0020_0000;

pub(super) fn unbuffered_stdout() -> io::Result<File> {
    Ok(io::stdout().as_handle().try_clone_to_owned()?.into())
}

pub(super) fn open_unlinked(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).custom_flags(OPEN_LINK).open(path)
}

/// The number of names is not available without `unsafe`.
pub(super) fn has_one_name(_: &Metadata) -> bool {
    true
}

/// Not checked: the index of a file is not available without `unsafe`.
pub(super) fn is_name_of(_: &Path, _: &File) -> bool {
    true
}

pub(super) fn rename_new(_: &File, from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

pub(super) fn host_name() -> Vec<u8> {
    ProcessEnv.get("COMPUTERNAME").unwrap_or_default().into_bytes()
}
