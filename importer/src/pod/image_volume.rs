//! Node pull by an image volume: the kubelet mounts the user's image into the pod, and an init
//! container has written the image's environment to a file.
//!
//! The image may be hostile. Paths in it are opened without following symbolic links, which would
//! lead into the importer's own filesystem, and only a regular file counts as its disk.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fetch::file::FileSource;
use program::env::EnvReader;
use program::limited::read_limited;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::{PULL_METHOD, SOURCE_VARIABLE};

/// Directory at which the image is mounted.
pub(super) const IMAGE_ROOT_DIR: &str = "IMPORTER_IMAGE_ROOT_DIR";
/// File with the environment of the image's containers.
pub(super) const ENV_FILE: &str = "IMPORTER_ENV_FILE";

/// Directory of the image that holds the disk.
const DISK_FOLDER: &str = "disk";
/// Directories that only the image of a bootc operating system has.
const BOOTC_FOLDERS: [&str; 2] = ["sysroot", "ostree"];

/// Maximum size of the file with the environment.
const MAX_ENV_BYTES: u64 = 1 << 20;

/// The reason why a mounted image cannot be imported. Most messages are CDI's.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageVolumeError {
    #[error("ImporterImageRootDir environment variable is empty or not set")]
    NoRoot,
    #[error(
        "bootc image detected: {} exists; the image holds an ostree-based bootable OS and no disk, and conversion to a \
         disk is not implemented",
        .0.display()
    )]
    Bootc(PathBuf),
    #[error("Cannot locate image file: image directory does not exist")]
    NoFolder,
    #[error(
        "Cannot locate image file: image file does not exist in image directory - directory is empty"
    )]
    Empty,
    #[error("Cannot locate image file: image directory contains more than one file")]
    SeveralFiles,
    #[error("Cannot locate image file: image directory contains another directory")]
    Folder,
    #[error(
        "Cannot locate image file: {} is a symbolic link or a special file; the disk must be a regular file in the \
         directory /{DISK_FOLDER} of the image",
        .0.display()
    )]
    NotRegular(PathBuf),
    #[error("Cannot locate image file: cannot read {}: {}", path.display(), stream::error::errno_text(cause))]
    Io { path: PathBuf, cause: io::Error },
}

/// An image that the kubelet has mounted.
#[derive(Debug)]
pub(super) struct ImageVolume {
    root: Option<PathBuf>,
    env_file: Option<PathBuf>,
}

impl ImageVolume {
    /// Reads the variables. Returns `None` unless a container image is to be pulled by the node.
    pub(super) fn from_env(reader: &EnvReader<'_>) -> Option<Self> {
        let is = |name, value| reader.read_text(name).as_deref() == Some(value);
        (is(SOURCE_VARIABLE, "registry") && is(PULL_METHOD, "node")).then(|| Self {
            root: reader.read_text(IMAGE_ROOT_DIR).map(Into::into),
            env_file: reader.read_text(ENV_FILE).map(Into::into),
        })
    }

    /// Opens the only file in the image's directory `disk`.
    pub(super) fn open_disk(
        &self,
        stop: CancellationToken,
    ) -> Result<FileSource, ImageVolumeError> {
        let root = self.root.as_deref().ok_or(ImageVolumeError::NoRoot)?;
        let failed =
            |path: &Path, cause: io::Error| ImageVolumeError::Io { path: path.to_owned(), cause };
        let folder_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The controller chooses the mount point, so symbolic links in its path may be followed.
        // Everything below it comes from the image and is not trusted.
        let image = openat(CWD, root, folder_flags, Mode::empty());
        let image = image.map_err(|errno| failed(root, errno.into()))?;
        if let Some(name) = BOOTC_FOLDERS.into_iter().find(|name| is_folder(&image, name)) {
            return Err(ImageVolumeError::Bootc(root.join(name)));
        }
        let path = root.join(DISK_FOLDER);
        let folder =
            match openat(&image, DISK_FOLDER, folder_flags | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => return Err(ImageVolumeError::NoFolder),
                Err(Errno::LOOP | Errno::NOTDIR) => return Err(ImageVolumeError::NotRegular(path)),
                Err(errno) => return Err(failed(&path, errno.into())),
            };
        let name = only_entry(&folder, &path)?;
        let path = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        // Without `NONBLOCK`, opening a pipe that has no writer would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&folder, &*name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // A symbolic link; a socket, or a device without a driver.
            Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => {
                return Err(ImageVolumeError::NotRegular(path));
            }
            Err(errno) => return Err(failed(&path, errno.into())),
        };
        let kind = file.metadata().map_err(|error| failed(&path, error))?.file_type();
        if kind.is_dir() {
            return Err(ImageVolumeError::Folder);
        }
        if !kind.is_file() {
            return Err(ImageVolumeError::NotRegular(path));
        }
        FileSource::from_regular_file(file, &path, stop).map_err(|error| failed(&path, error))
    }

    /// Reads the environment of the image's containers, a variable in each line. A failure is only
    /// logged, because labels are optional.
    pub(super) fn read_variables(&self) -> Vec<String> {
        let Some(path) = &self.env_file else {
            tracing::warn!("cannot read the labels of the image: {ENV_FILE} is empty or not set");
            return Vec::new();
        };
        match read_text(path) {
            Ok(text) => text.trim().split('\n').map(str::to_owned).collect(),
            Err(error) => {
                let cause = stream::error::errno_text(&error);
                tracing::error!("cannot read the labels of the image: {}: {cause}", path.display());
                Vec::new()
            }
        }
    }
}

fn is_folder(image: &OwnedFd, name: &str) -> bool {
    statat(image, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Returns the name of the only entry of `folder`, which messages call `path`.
fn only_entry(folder: impl AsFd, path: &Path) -> Result<Box<std::ffi::CStr>, ImageVolumeError> {
    let failed = |errno: Errno| ImageVolumeError::Io { path: path.to_owned(), cause: errno.into() };
    let mut only = None;
    for entry in Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if only.replace(name.into()).is_some() {
            return Err(ImageVolumeError::SeveralFiles);
        }
    }
    only.ok_or(ImageVolumeError::Empty)
}

/// Reads a regular file of at most [`MAX_ENV_BYTES`]. Bytes that are not UTF-8 are replaced. Labels
/// with such a character are dropped later.
fn read_text(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let bytes = read_limited(file, MAX_ENV_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs;

    use super::*;

    fn volume(variables: &[(&str, &str)]) -> Option<ImageVolume> {
        let env: HashMap<_, _> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        ImageVolume::from_env(&EnvReader::new(&env))
    }

    #[test]
    fn only_a_container_image_that_the_node_pulls_is_mounted() {
        let node =
            [(SOURCE_VARIABLE, "registry"), (PULL_METHOD, "node"), (IMAGE_ROOT_DIR, "/image")];
        assert_eq!(volume(&node).unwrap().root.as_deref(), Some(Path::new("/image")));
        assert!(volume(&node[..2]).unwrap().root.is_none());
        for other in [(SOURCE_VARIABLE, "http"), (PULL_METHOD, ""), (PULL_METHOD, "pod")] {
            assert!(volume(&[&node[..], &[other]].concat()).is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_file_with_variables_is_read_line_by_line_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env");
        let read = || {
            volume(&[
                (SOURCE_VARIABLE, "registry"),
                (PULL_METHOD, "node"),
                (ENV_FILE, path.to_str().unwrap()),
            ])
        };
        let read = || read().unwrap().read_variables();
        assert!(read().is_empty());
        fs::write(&path, b"\n A=1\nB=\xff\n\n").unwrap();
        assert_eq!(read(), ["A=1", "B=\u{fffd}"]);
        File::create(&path).unwrap().set_len(MAX_ENV_BYTES + 1).unwrap();
        assert!(read().is_empty());
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/proc/self/environ", &path).unwrap();
        assert!(read().is_empty());
    }
}
