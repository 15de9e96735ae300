//! The size of a volume for the progress, as `blockdev --getsize64` and `du` tell it.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// Files with several names that are remembered, so as to count them once: 32 MiB of memory.
const MAX_LINKED: usize = 1 << 20;

/// The bytes of a file that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeKind {
    /// Bytes that take space (`du -s --block-size=1`).
    Allocated,
    /// All, holes included (`du -sb`).
    Apparent,
}

/// Bytes of the files below `root`. What cannot be looked at does not count: it will be in the way of the clone soon enough,
/// and only as far as it is a part of it.
pub(crate) fn tree_bytes(root: &Path, count: SizeKind) -> u64 {
    let mut total = 0;
    let mut linked = HashSet::new();
    let mut waiting: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let is_root = path == root;
        // The root may be a link, nothing below it is followed.
        let metadata = if is_root { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let Ok(metadata) = metadata else {
            continue;
        };
        let is_dir = metadata.is_dir();
        if !is_dir && metadata.nlink() > 1 {
            let key = (metadata.dev(), metadata.ino());
            if linked.contains(&key) {
                continue;
            }
            if linked.len() < MAX_LINKED {
                linked.insert(key);
            }
        }
        total += file_bytes(&metadata, count);
        if is_dir && let Ok(entries) = fs::read_dir(&path) {
            waiting.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    total
}

fn file_bytes(metadata: &Metadata, count: SizeKind) -> u64 {
    match count {
        SizeKind::Allocated => metadata.blocks() * STAT_BLOCK_BYTES,
        SizeKind::Apparent => metadata.size(),
    }
}
