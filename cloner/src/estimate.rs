//! Estimates the size of a directory tree for the progress display, in the same way as `du`.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The unit of `st_blocks`, in bytes.
const STAT_BLOCK_BYTES: u64 = 512;

/// Maximum number of files with several hard links that are remembered so that each is counted
/// once. They take 32 MiB of memory.
const MAX_LINKED: usize = 1 << 20;

/// The bytes of a file that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeKind {
    /// Only the bytes that are allocated (`du -s --block-size=1`).
    Allocated,
    /// All bytes, including holes (`du -sb`).
    Apparent,
}

/// Returns the number of bytes of all files at and below `root`. Unreadable entries are skipped
/// here; if they are part of the clone, the clone itself will report them.
pub(crate) fn tree_bytes(root: &Path, count: SizeKind) -> u64 {
    let mut total = 0;
    let mut linked = HashSet::new();
    // A list is used instead of recursion, because the volume determines how deep directories
    // nest.
    let mut waiting: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let is_root = path == root;
        // The root may be a symbolic link; links below it are not followed.
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
