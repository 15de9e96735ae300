//! The volume to clone: either the bytes of a device or disk file, or the files of a directory as
//! a tar archive.

mod copy;
mod device;
mod file;
mod holes;
mod links;
mod tree;

use std::io;
use std::path::{Path, PathBuf};

use codec::encode::outgoing;
use codec::encode::outlet::{OutletClosedError, PieceOutlet};
use rustix::io::Errno;
use stream::error::errno_text;
use stream::storage::StorageLocation;

pub(crate) use self::device::DeviceSource;
use self::tree::DirectorySource;

/// Reasons why a volume cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeReadError {
    /// A system call failed.
    #[error("{action} {}: {}", path.display(), errno_text(source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A file is shorter than its announced size.
    #[error("{} became shorter while it was read: it had {announced} bytes, and now ends at byte {at}", path.display())]
    Shrank { path: PathBuf, announced: u64, at: u64 },
    /// An entry was replaced after it was listed.
    #[error("{} was replaced while the volume was read", path.display())]
    Replaced { path: PathBuf },
    /// A file has a type that cannot be cloned.
    #[error("{} is not a block device, a disk file or a directory", path.display())]
    Unsupported { path: PathBuf },
    /// The receiver of the stream is gone.
    #[error("the clone was stopped")]
    Gone(#[from] OutletClosedError),
}

impl VolumeReadError {
    fn from_errno(action: &'static str, path: &Path, errno: Errno) -> Self {
        Self::Io { action, path: path.to_owned(), source: errno.into() }
    }
}

/// The statistics of a clone in progress.
pub(crate) type Tally = outgoing::SendStats<VolumeReadError>;

/// An open volume.
pub(crate) enum VolumeSource {
    Device(DeviceSource),
    Files(DirectorySource),
}

impl VolumeSource {
    /// Opens a block device or a disk image file.
    pub(crate) fn open_device(path: &Path) -> Result<Self, VolumeReadError> {
        DeviceSource::open(path).map(Self::Device)
    }

    /// Opens the files below a directory. Holes are preserved if `sparse` is true.
    pub(crate) fn open_directory(path: &Path, sparse: bool) -> Result<Self, VolumeReadError> {
        DirectorySource::open(path, sparse).map(Self::Files)
    }

    /// Opens the source at `path`: a directory, a device, or a disk image file.
    pub(crate) fn open_path(path: &Path, sparse: bool) -> Result<Self, VolumeReadError> {
        if path.is_dir() { Self::open_directory(path, sparse) } else { Self::open_device(path) }
    }

    /// Returns the value of [`program::cdi::CONTENT_HEADER`] for this volume.
    pub(crate) fn content_type(&self) -> &'static str {
        match self {
            Self::Device(_) => program::cdi::DEVICE_CLONE,
            Self::Files(_) => program::cdi::FILES_CLONE,
        }
    }

    /// Returns where a device's bytes are stored, or `None` for the files of a directory.
    pub(crate) fn storage_location(&self) -> Option<StorageLocation> {
        match self {
            Self::Device(device) => device.storage_location(),
            Self::Files(_) => None,
        }
    }

    /// Reads the whole volume into `outlet`.
    pub(crate) fn read_into(&self, outlet: &mut PieceOutlet<'_>) -> Result<(), VolumeReadError> {
        match self {
            Self::Device(device) => device.read_from(0, outlet, |_| ())?,
            Self::Files(tree) => tree.read_into(outlet)?,
        }
        Ok(outlet.flush()?)
    }
}
