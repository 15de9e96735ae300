//! Errors of archives.

use std::fmt;

use crate::memory::MemoryLimitError;

/// An archive is damaged or unsupported, or would write outside its directory.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub struct ArchiveError {
    /// The fault that was found.
    #[source]
    pub kind: ArchiveErrorKind,
    /// Offset in the uncompressed tar at which the entry's header begins.
    pub offset: u64,
    /// The entry's name, as far as it is known. Unprintable characters are escaped.
    pub entry: Option<String>,
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, offset, entry } = self;
        match entry {
            _ if matches!(
                kind,
                ArchiveErrorKind::NoDiskImage | ArchiveErrorKind::NoDisk { .. }
            ) =>
            {
                write!(f, "{kind}")
            }
            Some(entry) => write!(f, "{kind} (entry `{entry}` at byte {offset:#x} of the tar)"),
            None => write!(f, "{kind} (at byte {offset:#x} of the tar)"),
        }
    }
}

/// A fault of an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveErrorKind {
    /// The first header is not a tar header.
    #[error(
        "this does not look like a tar archive: send a tar file, compressed or not, or use the content type kubevirt for a disk image"
    )]
    NotTar,
    /// The archive contradicts itself, or a header cannot be read.
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    /// The stream ends inside an entry, or before the entry that extended headers describe.
    #[error("the archive is truncated: {0}")]
    Truncated(String),
    /// A list whose length depends on the archive needs more memory than the budget allows.
    #[error("the list of the archive's entries {0}")]
    Memory(#[from] MemoryLimitError),
    /// A file name that is unsafe or invalid.
    #[error("the name {0}")]
    Name(&'static str),
    /// The entry contradicts an earlier one, for this reason.
    #[error("{0}")]
    Misplaced(String),
    /// A symbolic link that cannot be created.
    #[error("its symbolic link target {0}")]
    Symlink(&'static str),
    /// The files need more space than is available. CDI's controllers match this text.
    #[error(
        "{needed} bytes of files are larger than the reported available storage {available}. A larger PVC is required"
    )]
    NoRoom {
        /// Bytes of file data up to the end of this entry.
        needed: u64,
        /// Bytes that are available.
        available: u64,
    },
    /// A clone's archive contains no disk image. The message is upstream's.
    #[error("no disk image found in tar")]
    NoDiskImage,
    /// The file that should be an OVA does not begin with a tar header.
    #[error("this does not look like an OVA, which is a tar with a disk image in it")]
    NotAppliance,
    /// An OVA that contains no disk image.
    #[error(
        "the OVA contains no disk image (*.vmdk, *.vhd, *.vhdx, *.vdi, *.qcow2, *.img or *.raw); it contains {others}"
    )]
    NoDisk {
        /// The names of the OVA's first entries.
        others: String,
    },
    /// Anything else that is not supported, for this reason.
    #[error("{0}")]
    Refused(String),
}

impl ArchiveErrorKind {
    /// Returns an error if `needed` units of `what` exceed `limit`.
    pub fn check_limit(what: &'static str, needed: u64, limit: u64) -> Result<(), Self> {
        if needed <= limit {
            return Ok(());
        }
        Err(Self::Refused(format!("{what} of {needed} is larger than the limit of {limit}")))
    }
}
