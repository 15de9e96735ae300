//! The kinds of files that can be targets.

use std::fs::FileType;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::place::is_block_device;
use crate::error::{TargetError, TargetRefused};

/// A place for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing is there yet.
    Nothing,
    /// A regular file.
    File,
    /// A block device, also through a symbolic link: that is how udev and LVM name them.
    Device,
}

/// Looks for the place of a disk that is to be made. A symbolic link to a file is refused: neither is the link ours to
/// replace (`/dev/stdout` is one), nor the file that another user's link leads to.
pub(super) fn look(path: &Path) -> Result<Found, TargetError> {
    let kind = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(failed(path, error)),
    };
    if kind.is_symlink() && is_block_device(path) {
        return Ok(Found::Device);
    }
    classify(path, kind)
}

/// Looks for a disk that exists and stays where it is; links lead to it as well.
pub(super) fn follow(path: &Path) -> Result<Found, TargetError> {
    let metadata = std::fs::metadata(path).map_err(|error| failed(path, error))?;
    classify(path, metadata.file_type())
}

/// Refuses all kinds but files and block devices.
pub(super) fn classify(path: &Path, kind: FileType) -> Result<Found, TargetError> {
    let name = if kind.is_block_device() {
        return Ok(Found::Device);
    } else if kind.is_file() {
        return Ok(Found::File);
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
    Err(TargetError::refused("open", path, TargetRefused::Kind(name)))
}

fn failed(path: &Path, error: io::Error) -> TargetError {
    TargetError::new("open", path, error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn only_files_and_devices_are_targets() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "").unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        mknodat(CWD, path("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        symlink("/dev/null", path("link to null")).unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink("nowhere", path("dangling")).unwrap();
        let of = |found: Result<Found, TargetError>| found.map_err(|error| error.refusal().cloned());
        assert_eq!(of(look(&path("new"))), Ok(Found::Nothing));
        assert_eq!(of(look(&path("file"))), Ok(Found::File));
        for (name, kind) in [
            ("folder", "a directory"),
            ("pipe", "a pipe"),
            ("socket", "a socket"),
            ("link", "a symbolic link"),
            ("dangling", "a symbolic link"),
            ("link to null", "a symbolic link"),
        ] {
            assert_eq!(
                of(look(&path(name))),
                Err(Some(TargetRefused::Kind(kind))),
                "{name}"
            );
        }
        assert_eq!(
            of(look(Path::new("/dev/null"))),
            Err(Some(TargetRefused::Kind("a character device")))
        );
        // A disk that stays where it is may have any name.
        assert_eq!(of(follow(&path("link"))), Ok(Found::File));
        assert_eq!(
            of(follow(&path("link to null"))),
            Err(Some(TargetRefused::Kind("a character device")))
        );
        assert_eq!(of(follow(&path("dangling"))), Err(None));
    }
}
