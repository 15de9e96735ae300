//! Direct I/O: writes that bypass the page cache.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use stream::buffer::PAGE;

use super::options::CacheMode;

/// Smallest direct write in bytes. The page cache gathers smaller writes into larger ones, whereas
/// every direct write waits for the disk.
const LEAST_DIRECT_BYTES: usize = 64 << 10;

/// A second descriptor that bypasses the page cache.
#[derive(Debug)]
pub(super) struct DirectFile {
    pub(super) file: File,
    /// Smallest write in bytes for which this descriptor is used.
    least: usize,
    /// True once a direct write was refused. Some filesystems accept `O_DIRECT` at open but reject
    /// the write, or require larger blocks.
    refused: AtomicBool,
}

impl DirectFile {
    pub(super) fn new(file: File, cache: CacheMode) -> Self {
        let least = if cache == CacheMode::Direct { PAGE } else { LEAST_DIRECT_BYTES };
        Self { file, least, refused: AtomicBool::new(false) }
    }

    /// Uses the page cache from now on, because a direct write was refused.
    pub(super) fn give_up(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// True if a write of `bytes` should bypass the page cache.
    pub(super) fn is_for(&self, bytes: usize) -> bool {
        bytes >= self.least && !self.refused.load(Ordering::Relaxed)
    }
}
