//! Settings of a target.

use std::path::PathBuf;

/// Use of the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// Small pieces only, where the target can do without.
    #[default]
    Auto,
    /// Parts of pages only, where the target can do without.
    Direct,
    /// Everything.
    Page,
}

/// The place to write to, and the manner.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// A regular file to create, or an existing block device.
    pub path: PathBuf,
    /// Bytes that the disk may have at most; a device's size limits it too.
    pub available: u64,
    /// Grow a regular file to this many bytes at the end (never shrinks it).
    pub size: Option<u64>,
    /// Allocate every block, also for zeros.
    pub preallocate: bool,
    /// Use of the page cache.
    pub cache: CacheMode,
    /// Replace an existing regular file, unless another process is writing it.
    pub overwrite: bool,
    /// Permissions at the end; while it is written only the owner can open the file.
    pub mode: Option<u32>,
}
