//! The volume that is cloned: the bytes of a device or disk file, or a tar of a directory.

mod copy;
mod device;
mod file;
mod holes;
mod links;
mod tree;

use std::io;
use std::path::{Path, PathBuf};

use datapath::encode::outgoing;
use datapath::encode::outlet::{OutletClosedError, PieceOutlet};
use datapath::error::errno_text;
use datapath::storage::StorageLocation;
use rustix::io::Errno;

use self::device::DeviceSource;
use self::tree::DirectorySource;

/// A reason why a volume cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeReadError {
    /// The system said no.
    #[error("{action} {}: {}", path.display(), errno_text(source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A file is shorter than it was when its size was sent.
    #[error("{} became shorter while it was read: it had {announced} bytes, and now ends at byte {at}", path.display())]
    Shrank { path: PathBuf, announced: u64, at: u64 },
    /// A listed entry that is something else by now.
    #[error("{} was replaced while the volume was read", path.display())]
    Replaced { path: PathBuf },
    /// Only volumes can be cloned.
    #[error("{} is neither a directory nor a block device or file with a disk", path.display())]
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

/// What is known of a clone on its way.
pub(crate) type Tally = outgoing::SendStats<VolumeReadError>;

/// A volume, opened.
pub(crate) enum VolumeSource {
    Device(DeviceSource),
    Files(DirectorySource),
}

impl VolumeSource {
    /// A block device, or a file with a disk.
    pub(crate) fn open_device(path: &Path) -> Result<Self, VolumeReadError> {
        DeviceSource::open(path).map(Self::Device)
    }

    /// The files below a directory, with their holes if `sparse`.
    pub(crate) fn open_directory(path: &Path, sparse: bool) -> Result<Self, VolumeReadError> {
        DirectorySource::open(path, sparse).map(Self::Files)
    }

    /// The source at `path`: a directory, or a device or file with a disk.
    pub(crate) fn open_path(path: &Path, sparse: bool) -> Result<Self, VolumeReadError> {
        if path.is_dir() { Self::open_directory(path, sparse) } else { Self::open_device(path) }
    }

    /// The value of [`program::cdi::CONTENT_HEADER`].
    pub(crate) fn content_type(&self) -> &'static str {
        match self {
            Self::Device(_) => program::cdi::DEVICE_CLONE,
            Self::Files(_) => program::cdi::FILES_CLONE,
        }
    }

    /// The place of a device's bytes.
    pub(crate) fn storage_location(&self) -> Option<StorageLocation> {
        match self {
            Self::Device(device) => device.storage_location(),
            Self::Files(_) => None,
        }
    }

    /// Reads all of the volume into `outlet`.
    pub(crate) fn read_into(&self, outlet: &mut PieceOutlet<'_>) -> Result<(), VolumeReadError> {
        match self {
            Self::Device(device) => device.read_into(outlet)?,
            Self::Files(tree) => tree.read_into(outlet)?,
        }
        Ok(outlet.flush()?)
    }
}
