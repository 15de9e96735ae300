//! Errors of disk images, and of the archives that contain them.

use super::archive::{ArchiveError, ArchiveErrorKind};
use crate::facts::MAX_DISK_BYTES;
use crate::memory::MemoryLimitError;

/// A failure of the format stage.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The image itself is invalid or unsupported.
    #[error(transparent)]
    Image(#[from] diskimage::Error),
    /// The source is text, or a known kind of file that cannot be a disk.
    #[error("this is {0}")]
    NotDisk(String),
    /// The head of the image is larger than the memory budget allows.
    #[error("the head of the image {0}: give the process more memory")]
    Head(#[source] MemoryLimitError),
    /// The tables of the image are larger than the memory budget allows.
    #[error("the tables of the image {0}: give the process more memory")]
    Tables(#[source] MemoryLimitError),
    /// So many clusters wait for their position on the disk that the list of them exceeds the
    /// memory budget.
    #[error(
        "the list of clusters whose position is still unknown {0}: give the process more memory, or convert the image once with \
         `qemu-img convert`"
    )]
    Waiting(#[source] MemoryLimitError),
    /// The image is longer than any image with its virtual size can be.
    #[error(
        "{passed} bytes of the image were read, but an image of this virtual size has at most {most}: it may be endless; convert it \
         once with `qemu-img convert`"
    )]
    Endless {
        /// Bytes received.
        passed: u64,
        /// Maximum number of bytes in an image of this virtual size.
        most: u64,
    },
    /// The virtual disk does not fit on the target. CDI's controllers match this text.
    #[error(
        "virtual image size {virtual_size} is larger than the reported available storage {available}. A larger PVC is required"
    )]
    TooLarge {
        /// Size of the virtual disk in bytes; a lower bound if the image does not state its size.
        virtual_size: u64,
        /// Bytes that the target can hold.
        available: u64,
    },
    /// The source states another size of the disk than it has.
    #[error("the disk has {found} bytes, but its source states {stated}: publish it again")]
    StatedSize {
        /// The stated size in bytes.
        stated: u64,
        /// Size of the disk in bytes.
        found: u64,
    },
    /// The disk would be larger than any file or device can be.
    #[error(
        "the size of the disk would be {virtual_size} bytes, and no file or device can have more than {MAX_DISK_BYTES}: check the source"
    )]
    Impossible {
        /// Size of the virtual disk in bytes.
        virtual_size: u64,
    },
    /// The archive is damaged, unsupported, refused or too large.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A delta is based on something other than the disk on the target. The text is upstream's.
    #[error(
        "snapshot backing file '{found}' does not match expected checkpoint '{expected}', unable to safely rebase snapshot"
    )]
    Base {
        /// The backing file's name in the delta, without directories.
        found: String,
        /// The checkpoint that the target holds.
        expected: String,
    },
    /// A delta does not fit the disk on the target, or the files of a backup chain contradict each
    /// other: for this reason.
    #[error("{0}")]
    Misfit(String),
    /// A whole image was given as a delta.
    #[error("invalid qcow2 image: no backing file, so it is not a delta")]
    NoDelta,
    /// A delta names a base, but none was expected.
    #[error("the delta has the backing file '{found}', expected a delta without a backing file")]
    NamedBase {
        /// The backing file's name in the delta, without directories.
        found: String,
    },
    /// Because of the order of the image, more bytes wait for their position than fit into memory,
    /// and neither the target nor a scratch directory can hold them.
    #[error(
        "the image stores {parked} bytes before it states where they belong, and neither memory ({budget} bytes), the target nor a \
         scratch directory can hold them: convert it once with `qemu-img convert`, serve it uncompressed from a server that supports \
         ranges, or provide a scratch directory"
    )]
    Parking {
        /// Bytes that are waiting.
        parked: u64,
        /// Maximum number of bytes that may wait in memory.
        budget: u64,
    },
}

impl FormatError {
    /// Names of all kinds, for the metric label `kind`.
    // `kind_name` destructures this array, so it cannot return a name that is not listed here.
    pub(super) const KINDS: [&'static str; 6] =
        ["image", "archive", "memory", "endless", "too-large", "base"];

    /// Name of the kind. Several variants share one name.
    pub(super) fn kind_name(&self) -> &'static str {
        let [image, archive, memory, endless, too_large, base] = Self::KINDS;
        match self {
            Self::Image(_)
            | Self::NoDelta
            | Self::NotDisk(_)
            | Self::StatedSize { .. }
            | Self::Impossible { .. } => image,
            Self::Archive(_) if !self.is_too_large() => archive,
            Self::Archive(_) | Self::TooLarge { .. } => too_large,
            Self::Head(_) | Self::Tables(_) | Self::Waiting(_) | Self::Parking { .. } => memory,
            Self::Endless { .. } => endless,
            Self::Base { .. } | Self::NamedBase { .. } | Self::Misfit(_) => base,
        }
    }

    /// True if a larger volume would help.
    pub fn is_too_large(&self) -> bool {
        match self {
            Self::TooLarge { .. } => true,
            Self::Archive(error) => matches!(error.kind, ArchiveErrorKind::NoRoom { .. }),
            _ => false,
        }
    }
}
