//! Opens a file that only its owner can access, on Windows: it lies in the user's profile, whose
//! access control list it inherits. `unix.rs` describes the function.

use std::fs::{self, File};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a link itself, not the file to which it leads (FILE_FLAG_OPEN_REPARSE_POINT of
/// CreateFileW).
const OPEN_LINK: u32 = 0x0020_0000;

pub(super) fn open_private(folder: &Path, name: &str) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    if !fs::symlink_metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).custom_flags(OPEN_LINK);
    let file = options.open(folder.join(name))?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}
