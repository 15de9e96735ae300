//! Finds and opens the disk in a user's container image.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderValue;
use program::paths::PodPaths;
use rustix::fs::{Advice, Mode, OFlags};

/// Directories that exist only in the image of a bootc operating system.
const BOOTC_FOLDERS: [&str; 2] = ["/sysroot", "/ostree"];

/// An open disk. The same bytes are served even if the file is renamed or removed.
#[derive(Debug, Clone)]
pub(crate) struct ServedDisk {
    /// The file name as bytes, whose encoding may be any.
    pub(crate) name: Vec<u8>,
    pub(crate) file: Arc<File>,
    /// Length in bytes.
    pub(crate) length: u64,
    pub(crate) modified: SystemTime,
    /// A strong entity tag: an equal tag means that the file is the same and unchanged (RFC 9110
    /// §8.8.3).
    pub(crate) tag: HeaderValue,
}

impl ServedDisk {
    /// Finds the only file in `dir`. `paths` maps paths in the container to actual paths. The error
    /// is the reason why the image cannot be served.
    pub(crate) fn find_disk(dir: &Path, paths: &PodPaths) -> Result<Self, String> {
        let mut folders = BOOTC_FOLDERS.iter().map(|folder| paths.resolve_path(folder));
        if let Some(folder) = folders.find(|folder| folder.is_dir()) {
            return Err(format!(
                "bootc image detected: {} exists. It is an operating system that installs itself, not a disk in a container: \
                 make a disk image of it with bootc-image-builder first",
                folder.display()
            ));
        }
        match files_in(dir).map_err(|error| read_error(dir, &error))?.as_slice() {
            [path] => Self::open(path),
            files => Err(format!(
                "Invalid container image: {} must hold one file, the disk, but holds {}",
                dir.display(),
                files.len()
            )),
        }
    }

    fn open(path: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| read_error(path, &error);
        // Without `NONBLOCK`, opening a pipe that has no writer would block.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let file = File::from(file);
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            let path = path.display();
            return Err(format!("Invalid container image: {path} is not a regular file"));
        }
        // This makes the kernel read further ahead. It is only an optimization, so an error is
        // ignored.
        rustix::fs::fadvise(&file, 0, None, Advice::Sequential).ok();
        let tag = format!(
            "\"{:x}-{:x}-{:x}.{:x}\"",
            metadata.ino(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec()
        );
        Ok(Self {
            name: path.file_name().unwrap_or_default().to_owned().into_vec(),
            file: Arc::new(file),
            length: metadata.len(),
            modified: metadata.modified().map_err(failed)?,
            tag: HeaderValue::try_from(tag).map_err(|error| failed(io::Error::other(error)))?,
        })
    }
}

fn read_error(path: &Path, error: &io::Error) -> String {
    format!("Failed reading {}: {error}", path.display())
}

/// Returns the entries of `dir` that are not directories.
fn files_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(dir: &Path) -> String {
        let paths = PodPaths::from_prefix(dir.join("root").to_str());
        ServedDisk::find_disk(&dir.join("disk"), &paths).unwrap_err()
    }

    #[test]
    fn the_only_file_is_the_disk_and_folders_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("disk");
        fs::create_dir_all(dir.join("lost+found")).unwrap();
        assert!(refusal(folder.path()).ends_with("must hold one file, the disk, but holds 0"));
        fs::write(dir.join("a b.img"), "12345").unwrap();
        let disk =
            ServedDisk::find_disk(&dir, &PodPaths::from_prefix(folder.path().to_str())).unwrap();
        assert_eq!((disk.name.as_slice(), disk.length), (&b"a b.img"[..], 5));
        fs::write(dir.join("second"), "").unwrap();
        assert!(refusal(folder.path()).starts_with("Invalid container image: "));
        assert!(refusal(folder.path()).ends_with("but holds 2"));
    }

    #[test]
    fn pipes_and_links_are_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("disk");
        assert!(refusal(folder.path()).contains("No such file"));
        fs::create_dir(&dir).unwrap();
        let pipe = dir.join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, 0o600.into(), 0).unwrap();
        assert!(refusal(folder.path()).ends_with("pipe is not a regular file"));
        fs::remove_file(&pipe).unwrap();
        std::os::unix::fs::symlink(folder.path(), dir.join("link")).unwrap();
        assert!(refusal(folder.path()).ends_with("link is not a regular file"));
    }

    #[test]
    fn bootc_images_are_refused() {
        for name in ["sysroot", "ostree"] {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("disk")).unwrap();
            fs::write(folder.path().join("disk/disk.img"), "").unwrap();
            fs::create_dir_all(folder.path().join("root").join(name)).unwrap();
            assert!(refusal(folder.path()).starts_with("bootc image detected: "), "{name}");
        }
    }

    #[test]
    fn a_changed_file_has_another_tag() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, "12345").unwrap();
        let before = ServedDisk::open(&path).unwrap().tag;
        assert_eq!(ServedDisk::open(&path).unwrap().tag, before);
        let later = SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(1);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_ne!(ServedDisk::open(&path).unwrap().tag, before);
    }
}
