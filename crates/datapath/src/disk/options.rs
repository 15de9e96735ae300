//! Settings of a target.

use std::path::{Path, PathBuf};

/// When to use the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// For small pieces only, if the target supports direct I/O.
    #[default]
    Auto,
    /// For parts of pages only, if the target supports direct I/O.
    Direct,
    /// Always.
    Page,
}

/// Where and how to write the disk.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// A regular file to create, or an existing block device.
    pub path: PathBuf,
    /// Largest size of the disk in bytes. The size of a device limits it too.
    pub available: u64,
    /// True if `available` limits the stored bytes instead of the size of the disk: zeros become
    /// holes in a file. For a copy of a disk that is mostly empty.
    pub counts_stored: bool,
    /// Grow a regular file to at least this many bytes at the end. The file is never shrunk.
    pub size: Option<u64>,
    /// Allocate every block, including those that hold only zeros.
    pub preallocate: bool,
    /// When to use the page cache.
    pub cache: CacheMode,
    /// Replace an existing regular file, unless another process is writing it.
    pub overwrite: bool,
    /// Permissions of the finished file. While it is written, only its owner can open it.
    pub mode: Option<u32>,
}

impl DiskOptions {
    /// Returns options for a new, sparse file or a device at `path`, of at most `available` bytes.
    pub fn new(path: &Path, available: u64) -> Self {
        Self {
            path: path.to_owned(),
            available,
            counts_stored: false,
            size: None,
            preallocate: false,
            cache: CacheMode::Auto,
            overwrite: false,
            mode: None,
        }
    }
}
