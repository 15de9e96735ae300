//! The way past the page cache.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use super::options::CacheMode;
use crate::buffer::PAGE;

/// Least bytes of a direct write. What is smaller goes through the page cache, which gathers it into larger writes; a direct write waits for the disk
/// every time.
const LEAST_DIRECT_BYTES: usize = 64 << 10;

/// A second descriptor that bypasses the page cache.
#[derive(Debug)]
pub(super) struct DirectFile {
    pub(super) file: File,
    /// Least bytes of a piece for which bypassing the page cache pays.
    least: usize,
    /// Some filesystems accept `O_DIRECT` and refuse the write, or want larger blocks.
    refused: AtomicBool,
}

impl DirectFile {
    pub(super) fn new(file: File, cache: CacheMode) -> Self {
        let least = if cache == CacheMode::Direct { PAGE } else { LEAST_DIRECT_BYTES };
        Self { file, least, refused: AtomicBool::new(false) }
    }

    /// Uses the page cache from now on, since direct writes were refused.
    pub(super) fn give_up(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// True if a write of `bytes` goes past the page cache.
    pub(super) fn is_for(&self, bytes: usize) -> bool {
        bytes >= self.least && !self.refused.load(Ordering::Relaxed)
    }
}
