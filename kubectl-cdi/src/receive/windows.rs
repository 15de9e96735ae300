//! The parts of a download that differ between operating systems, on Windows. `unix.rs` describes
//! the functions.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsHandle;
use std::path::Path;

use program::env::{NamedStrings, ProcessEnv};
use winapi_util::file::information;

use super::REPLACED;

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

pub(super) fn has_one_name(file: &File) -> bool {
    information(file).is_ok_and(|found| found.number_of_links() == 1)
}

pub(super) fn is_name_of(path: &Path, file: &File) -> bool {
    let identity = |file: &File| {
        let found = information(file).ok()?;
        Some((found.volume_serial_number(), found.file_index()))
    };
    let named = File::options().read(true).custom_flags(OPEN_LINK).open(path).ok();
    named.is_some_and(|named| identity(&named).is_some_and(|found| identity(file) == Some(found)))
}

pub(super) fn rename_new(file: &File, from: &Path, to: &Path) -> io::Result<()> {
    if !is_name_of(from, file) {
        return Err(io::Error::other(REPLACED));
    }
    // Renaming would replace a file that has appeared meanwhile. A second name never does. FAT has
    // no second names.
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        Err(_) => std::fs::rename(from, to),
    }
}

pub(super) fn host_name() -> Vec<u8> {
    ProcessEnv.get("COMPUTERNAME").unwrap_or_default().into_bytes()
}
