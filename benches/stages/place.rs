//! Where benches write to.

use std::path::{Path, PathBuf};

use datapath::disk::{CacheMode, DiskOptions};
use tempfile::TempDir;

use crate::Result;

/// A folder on the disk that the project is built on. `/tmp` is memory on many machines, where direct I/O and syncing
/// mean nothing.
pub(crate) fn on_disk() -> Result<TempDir> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(folder)?;
    Ok(tempfile::tempdir_in(folder)?)
}

/// A folder in memory where there is one, so that figures are those of the processor.
pub(crate) fn in_memory() -> Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| on_disk())
}

/// A file that is replaced by each iteration, or a device.
pub(crate) fn target(path: PathBuf, cache: CacheMode) -> DiskOptions {
    DiskOptions {
        path,
        available: u64::MAX,
        size: None,
        preallocate: false,
        cache,
        overwrite: true,
        mode: None,
    }
}
