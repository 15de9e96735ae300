//! Trouble with a disk image, or with the archive that it lies in.

use super::archive::{ArchiveError, ArchiveErrorKind};
use crate::facts::MAX_DISK_BYTES;
use crate::memory::MemoryLimitError;

/// A source that is text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPayload {
    /// The first characters of the text, on one line.
    pub beginning: String,
    /// Bytes in all, if that is known.
    pub bytes: Option<u64>,
    /// The type that a server gives it.
    pub content_type: Option<String>,
}

impl std::fmt::Display for TextPayload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this is text, not a disk: it begins with \"{}\"", self.beginning)?;
        match (&self.content_type, self.bytes) {
            (Some(content_type), Some(bytes)) => write!(f, " ({content_type}, {bytes} bytes)"),
            (Some(words), None) => write!(f, " ({words})"),
            (None, Some(bytes)) => write!(f, " ({bytes} bytes)"),
            (None, None) => Ok(()),
        }
    }
}

/// The way to import what looks like no disk.
const TAKE_RAW: &str = "to take it as a disk all the same, give --format raw, or put it into a qcow2 by `qemu-img convert -f raw -O qcow2`";

/// A failure of the format stage.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The image itself is invalid or unsupported.
    #[error(transparent)]
    Image(#[from] diskimage::Error),
    /// The source is text: a page about a disk, or a refusal.
    #[error("{0}: check the address, and whether it wants a login; {TAKE_RAW}")]
    Text(TextPayload),
    /// The source is a file of a kind that is no disk.
    #[error("this is {0}, not a disk: check the address; {TAKE_RAW}")]
    Foreign(&'static str),
    /// The head of the image is larger than there is memory for.
    #[error("the head of the image {0}: give the process more memory")]
    Head(#[source] MemoryLimitError),
    /// The tables of the image are larger than there is memory for.
    #[error("the tables of the image {0}: give the process more memory")]
    Tables(#[source] MemoryLimitError),
    /// More of the image has to wait for its place than there is memory to remember.
    #[error(
        "to remember which clusters of the image wait for their place {0}: give the process more memory, or convert the image once with `qemu-img convert`"
    )]
    Waiting(#[source] MemoryLimitError),
    /// The image goes on long after a disk of its size must have come.
    #[error(
        "{passed} bytes of the image came, and one of its virtual size has {most} at most: it may never end; convert it once with `qemu-img convert`"
    )]
    Endless {
        /// Bytes that came.
        passed: u64,
        /// Bytes that it may have.
        most: u64,
    },
    /// The virtual disk does not fit. The text is matched by CDI's controllers.
    #[error(
        "virtual image size {virtual_size} is larger than the reported available storage {available}. A larger PVC is required"
    )]
    TooLarge {
        /// Bytes of the virtual disk (at least, when the image states no size).
        virtual_size: u64,
        /// Bytes that the target can hold.
        available: u64,
    },
    /// The disk has a size that no target can have, wherever that number comes from.
    #[error(
        "the size of the disk would be {virtual_size} bytes, and no file or device can have more than {MAX_DISK_BYTES}: check the source"
    )]
    Impossible {
        /// Bytes of the virtual disk.
        virtual_size: u64,
    },
    /// The archive is damaged, unsupported, refused or too large.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A delta is the difference to something else. The text is upstream's.
    #[error(
        "snapshot backing file '{found}' does not match expected checkpoint '{expected}', unable to safely rebase snapshot"
    )]
    Base {
        /// The name in the delta, without folders.
        found: String,
        /// The checkpoint that the target holds.
        expected: String,
    },
    /// The changes are those of a larger disk than the one that is there.
    #[error(
        "the source's disk has {virtual_size} bytes, and the one that was imported has {held}: it has grown since then, so import it anew"
    )]
    Grown {
        /// Bytes of the disk that changed.
        virtual_size: u64,
        /// Bytes of the disk that is there.
        held: u64,
    },
    /// The order of the image makes more bytes wait for their place than may be kept, and there is nowhere to put them.
    #[error(
        "the image refers to {parked} bytes before it says where they belong, and neither memory ({budget} bytes), the target nor a scratch directory can hold them: convert it once with `qemu-img convert`, serve it uncompressed from a server with ranges, or name a scratch directory"
    )]
    Parking {
        /// Bytes that had to wait.
        parked: u64,
        /// Bytes that may wait in memory.
        budget: u64,
    },
}

impl FormatError {
    /// The names of all kinds.
    // `kind` takes them apart, so that it can have no other.
    pub(super) const KINDS: [&'static str; 6] =
        ["image", "archive", "memory", "endless", "too-large", "base"];

    /// The kind, a coarse one.
    pub(super) fn kind_name(&self) -> &'static str {
        let [image, archive, memory, endless, too_large, base] = Self::KINDS;
        match self {
            Self::Image(_) | Self::Text(_) | Self::Foreign(_) | Self::Impossible { .. } => image,
            Self::Archive(_) if !self.is_too_large() => archive,
            Self::Archive(_) | Self::TooLarge { .. } => too_large,
            Self::Head(_) | Self::Tables(_) | Self::Waiting(_) | Self::Parking { .. } => memory,
            Self::Endless { .. } => endless,
            Self::Base { .. } | Self::Grown { .. } => base,
        }
    }

    /// True if a larger volume would have helped.
    pub fn is_too_large(&self) -> bool {
        match self {
            Self::TooLarge { .. } => true,
            Self::Archive(error) => matches!(error.kind, ArchiveErrorKind::NoRoom { .. }),
            _ => false,
        }
    }
}
