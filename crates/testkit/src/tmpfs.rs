//! File systems in memory: small ones to fill up, and fast ones on which `fsync` costs nothing.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::fail::OrFail;
use crate::tools;

/// The folder for shared memory in Linux: a tmpfs that can be used without root. In containers it
/// is often limited to 64 MiB.
const SHARED_MEMORY: &str = "/dev/shm";

/// The free space that [`fast_folder`] requires: several times what all concurrent tests need.
const ROOM_BYTES: u64 = 2 << 30;

/// Returns a temporary folder, in memory if there is enough space. It is for tests that make and
/// sync hundreds of small disks, which take minutes longer on a real disk.
pub fn fast_folder() -> TempDir {
    let room = rustix::fs::statvfs(SHARED_MEMORY)
        .map(|memory| memory.f_bavail.saturating_mul(memory.f_frsize))
        .unwrap_or(0);
    let folder =
        if room >= ROOM_BYTES { tempfile::tempdir_in(SHARED_MEMORY) } else { tempfile::tempdir() };
    folder.or_fail("a temporary folder")
}

/// A mounted tmpfs. It is unmounted when dropped.
pub struct Tmpfs {
    folder: PathBuf,
}

impl Tmpfs {
    /// Mounts a file system of `bytes` on an existing folder. Needs root.
    pub fn on(folder: &Path, bytes: u64) -> Self {
        let size = format!("size={bytes}");
        let words = ["-t", "tmpfs", "-o", &size, "none"].map(AsRef::as_ref);
        tools::run("mount", words.into_iter().chain([folder.as_os_str()]));
        Self { folder: folder.to_owned() }
    }

    /// Uses up all free space with a file of this name. Removing the file frees the space.
    pub fn fill(&self, name: &str) -> PathBuf {
        const PAGE: [u8; 4096] = [0xFF; 4096];
        let path = self.folder.join(name);
        let mut file = File::create(&path).or_fail(path.display());
        while file.write_all(&PAGE).is_ok() {}
        path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // A program of a failed test may still use the mount. A lazy unmount takes effect when it
        // ends.
        tools::run("umount", ["--lazy".as_ref(), self.folder.as_os_str()]);
    }
}
