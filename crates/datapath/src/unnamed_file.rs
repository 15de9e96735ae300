//! Scratch files without a name. They disappear with the process, even if it is killed.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use stream::error::TargetError;

/// Creates a file in `dir` that only its owner may read and write.
pub(crate) fn create_unnamed(dir: &Path) -> Result<File, TargetError> {
    let error = |source| TargetError::new("create scratch file in", dir, source);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let owner = Mode::RUSR | Mode::WUSR;
    if let Ok(file) = rustix::fs::open(dir, flags | OFlags::TMPFILE, owner) {
        return Ok(file.into());
    }
    // NFS has no O_TMPFILE: create a named file there and remove its name at once. In a container
    // each attempt may have the same process id, so the name is random: a file of an attempt that
    // was killed in between does not block the next one.
    let path =
        dir.join(format!(".cdi-scratch-{:016x}", RandomState::new().build_hasher().finish()));
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, owner)
        .map_err(|errno| error(errno.into()))?;
    std::fs::remove_file(&path).map_err(error)?;
    Ok(file.into())
}
