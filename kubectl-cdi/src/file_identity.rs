//! The identity of a local file, by which another process recognizes an upload that it can resume.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Identifies a file and its state. If two identities are equal, the file is the same and
/// unchanged, so that another process can resume its upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileIdentity {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Time of the last modification.
    pub(crate) changed: SystemTime,
    /// The inode, or on Windows the time of creation.
    pub(crate) inode: u64,
}

impl FileIdentity {
    /// Reads the state of the open `file`, which has the absolute `path`.
    pub(crate) fn new(path: PathBuf, file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            path,
            bytes: metadata.len(),
            changed: metadata.modified()?,
            inode: inode_of(&metadata),
        })
    }
}

#[cfg(unix)]
fn inode_of(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

/// Returns the time at which the file was created: Windows' file index needs an unstable function
/// of the standard library.
#[cfg(windows)]
fn inode_of(metadata: &Metadata) -> u64 {
    std::os::windows::fs::MetadataExt::creation_time(metadata)
}

/// Returns the absolute path, by which another process finds the file too.
#[cfg(unix)]
pub(crate) fn full_path(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

/// Like on Unix, but with symbolic links: without them, Windows would return a path such as
/// `\\?\C:\disk.raw`, which confuses users in messages.
#[cfg(windows)]
pub(crate) fn full_path(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path)
}
