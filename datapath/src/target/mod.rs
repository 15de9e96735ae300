//! The disk that is written: a regular file or a block device.
//!
//! [`Disk`] owns the file and what must be true of it: nothing complete-looking before [`Disk::commit`], zeros where
//! the image says nothing. [`Writer`] takes extents in any order and spreads the work over threads.

mod batch;
mod blank;
mod bounce;
mod coverage;
mod disk;
mod inflate;
mod kind;
mod open;
mod slices;
mod unfinished;
mod write;
mod writer;
mod zero;
mod zeroing;

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

pub use blank::create_blank;
pub use coverage::Coverage;
pub use disk::Disk;
pub(crate) use inflate::Inflater;
pub use unfinished::abandon;
pub(crate) use write::Pacer;
pub use writer::{Writer, with_writer};
pub use zero::{ZERO_BLOCK, ZEROS, data_runs, is_known_zero, is_zero};

use crate::error::{Refusal, TargetError};
use crate::source::Source;
use crate::storage::Storage;

/// What is held back until everything else is verified and on the disk: partition tables, boot sectors and file
/// system superblocks of every common layout begin within the first MiB.
pub const HELD_BYTES: u64 = 1 << 20;

/// What goes through the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cache {
    /// Small pieces only, where the target can do without.
    #[default]
    Auto,
    /// Parts of pages only, where the target can do without.
    Direct,
    /// Everything.
    Page,
}

/// Where and how to write.
#[derive(Debug, Clone)]
pub struct Options {
    /// A regular file to create, or an existing block device.
    pub path: PathBuf,
    /// Bytes that the disk may have at most; a device's size limits it too.
    pub available: u64,
    /// Grow a regular file to this many bytes at the end (never shrinks it).
    pub size: Option<u64>,
    /// Allocate every block, also for zeros.
    pub preallocate: bool,
    /// What goes through the page cache.
    pub cache: Cache,
    /// Replace an existing regular file, unless another process is writing it.
    pub overwrite: bool,
    /// Permissions at the end; while it is written only the owner can open the file.
    pub mode: Option<u32>,
}

/// True if `path` is a block device, also through a symbolic link.
pub fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Bytes of a block device.
pub fn device_size(path: &Path) -> Result<u64, TargetError> {
    use std::io::{Seek, SeekFrom};
    std::fs::File::open(path)
        .and_then(|mut file| file.seek(SeekFrom::End(0)))
        .map_err(|source| TargetError::new("measure", path, source))
}

/// Bytes that an ordinary user may still write into the filesystem that holds `dir`.
pub fn free_space(dir: &Path) -> Result<u64, TargetError> {
    let stat = rustix::fs::statvfs(dir).map_err(|errno| TargetError::new("statfs", dir, errno.into()))?;
    // statvfs counts f_bavail in units of f_frsize, which is what the kernel's statfs calls f_bsize.
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Fails if writing to `path` would change what `source` reads.
pub(crate) fn refuse_source(path: &Path, source: &dyn Source) -> Result<(), TargetError> {
    match (source.storage(), Storage::at(path)) {
        (Some(source), Some(target)) if source.shares_bytes_with(target) => {
            Err(TargetError::refused("open", path, Refusal::Source))
        }
        _ => Ok(()),
    }
}

/// Removes the file that a dead attempt has left at `path`. A file that a living process writes stays, like all that is no
/// regular file: they are refused when the disk is opened.
pub fn remove_stale(path: &Path) {
    if let Err(error) = unfinished::clear(path) {
        tracing::warn!(%error, "could not remove the disk of an earlier attempt");
    }
}

/// The folder of a file, also for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

impl TargetError {
    /// `action` on `path` failed.
    pub fn new(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self {
            action,
            path: path.display().to_string(),
            source,
        }
    }
}
