//! A directory that only its owner can access, on Windows: it lies in the user's profile, whose
//! access control list it inherits. `unix.rs` describes the functions.

use std::fs::{self, File};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Opens a link itself, not the file to which it leads (FILE_FLAG_OPEN_REPARSE_POINT of
/// CreateFileW).
const OPEN_LINK: u32 = 0x0020_0000;

#[derive(Debug)]
pub(super) struct LedgerFolder(PathBuf);

impl LedgerFolder {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        match fs::symlink_metadata(path)?.is_dir() {
            true => Ok(Self(path.to_owned())),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(super) fn open_file(&self, name: &str) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).custom_flags(OPEN_LINK);
        let file = options.open(self.0.join(name))?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is not a regular file")),
        }
    }

    pub(super) fn remove_file(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }
}
