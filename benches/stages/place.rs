//! Where the benchmarks write.

use std::path::{Path, PathBuf};

use datapath::disk::{CacheMode, DiskOptions};
use tempfile::TempDir;

use crate::Result;

/// A folder on the disk that contains the build. `/tmp` is in memory on many machines, where
/// direct I/O and syncing have no effect.
pub(crate) fn on_disk() -> Result<TempDir> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(folder)?;
    Ok(tempfile::tempdir_in(folder)?)
}

/// A folder in memory if there is one, so that only the processor is measured.
pub(crate) fn in_memory() -> Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| on_disk())
}

/// Options for writing to a device, or to a file that each iteration replaces.
pub(crate) fn target(path: PathBuf, cache: CacheMode) -> DiskOptions {
    DiskOptions {
        path,
        available: u64::MAX,
        counts_stored: false,
        size: None,
        preallocate: false,
        cache,
        overwrite: true,
        mode: None,
    }
}
