//! Properties of the target's path: its kind, its size, its free space, and whether it is the
//! source.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use stream::error::{TargetError, TargetRefusedError};
use stream::source::Source;
use stream::storage::StorageLocation;

/// True if `path` is a block device or a symbolic link to one.
pub fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Size of a block device in bytes.
pub fn device_size(path: &Path) -> Result<u64, TargetError> {
    File::open(path)
        .and_then(|mut file| file.seek(SeekFrom::End(0)))
        .map_err(|source| TargetError::new("measure", path, source))
}

/// Bytes that an unprivileged user may still write to the filesystem that holds `dir`.
pub fn free_space(dir: &Path) -> Result<u64, TargetError> {
    let stat =
        rustix::fs::statvfs(dir).map_err(|errno| TargetError::new("statfs", dir, errno.into()))?;
    // statvfs counts f_bavail in units of f_frsize, which the kernel's statfs calls f_bsize.
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Returns an error if writing to `path` would change what `source` reads.
pub(crate) fn refuse_source(path: &Path, source: &dyn Source) -> Result<(), TargetError> {
    match (source.storage_location(), StorageLocation::from_path(path)) {
        (Some(source), Some(target)) if source.shares_bytes_with(target) => {
            Err(TargetError::from_refusal("open", path, TargetRefusedError::Source))
        }
        _ => Ok(()),
    }
}

/// The directory that contains a file; `.` for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
