//! Properties of the target's path: its kind, its size, its free space, and whether it is the
//! source.

use std::fs::{File, FileType};
use std::io::{self, ErrorKind, Seek, SeekFrom};
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

/// State of a target's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetKind {
    /// No file exists yet.
    Nothing,
    /// A regular file.
    File,
    /// A block device, or a symbolic link to one: udev and LVM name devices by links.
    Device,
}

/// Determines what exists at the path of a disk that is to be created. A symbolic link to a file
/// is refused: replacing the link itself could be wrong (`/dev/stdout` is one), and so could
/// overwriting the file that another user's link leads to.
pub(super) fn inspect_target(path: &Path) -> Result<TargetKind, TargetError> {
    let kind = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(TargetKind::Nothing),
        Err(error) => return Err(open_error(path, error)),
    };
    if kind.is_symlink() && is_block_device(path) {
        return Ok(TargetKind::Device);
    }
    classify_target(path, kind)
}

/// Determines what exists at the path of a disk that stays in place. Symbolic links are followed.
pub(super) fn inspect_existing(path: &Path) -> Result<TargetKind, TargetError> {
    let metadata = std::fs::metadata(path).map_err(|error| open_error(path, error))?;
    classify_target(path, metadata.file_type())
}

/// Refuses everything except regular files and block devices.
pub(super) fn classify_target(path: &Path, kind: FileType) -> Result<TargetKind, TargetError> {
    let name = if kind.is_block_device() {
        return Ok(TargetKind::Device);
    } else if kind.is_file() {
        return Ok(TargetKind::File);
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a socket"
    };
    Err(TargetError::from_refusal("open", path, TargetRefusedError::Kind(name)))
}

fn open_error(path: &Path, error: io::Error) -> TargetError {
    TargetError::new("open", path, error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn only_files_and_block_devices_are_targets() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "").unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        mknodat(CWD, path("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        symlink("/dev/null", path("link to null")).unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        let of = |found: Result<TargetKind, TargetError>| {
            found.map_err(|error| error.refusal_reason().cloned())
        };
        assert_eq!(of(inspect_target(&path("new"))), Ok(TargetKind::Nothing));
        assert_eq!(of(inspect_target(&path("file"))), Ok(TargetKind::File));
        for (name, kind) in [
            ("folder", "a directory"),
            ("pipe", "a pipe"),
            ("socket", "a socket"),
            ("link", "a symbolic link"),
            ("dangling", "a symbolic link"),
            ("link to null", "a symbolic link"),
        ] {
            assert_eq!(
                of(inspect_target(&path(name))),
                Err(Some(TargetRefusedError::Kind(kind))),
                "{name}"
            );
        }
        assert_eq!(
            of(inspect_target(Path::new("/dev/null"))),
            Err(Some(TargetRefusedError::Kind("a character device")))
        );
        // An existing disk may be opened through a symbolic link.
        assert_eq!(of(inspect_existing(&path("link"))), Ok(TargetKind::File));
        assert_eq!(
            of(inspect_existing(&path("link to null"))),
            Err(Some(TargetRefusedError::Kind("a character device")))
        );
        assert_eq!(of(inspect_existing(&path("dangling"))), Err(None));
    }
}
