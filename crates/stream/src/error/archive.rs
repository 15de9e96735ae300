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
    /// The checksum of a header does not match its bytes.
    #[error(
        "the archive is damaged: the checksum of a header is {stored}, its bytes add up to {calculated}"
    )]
    HeaderChecksum {
        /// The checksum in the header; -1 if the field is not a number.
        stored: i64,
        /// The sum of the header's bytes.
        calculated: i64,
    },
    /// A header field is not a number, or its number is invalid.
    #[error("the archive is damaged: `{value}` is not a valid {field}")]
    Number {
        /// Name of the field.
        field: &'static str,
        /// The text found there.
        value: String,
    },
    /// The stream ends inside an entry.
    #[error("the archive is truncated: {missing} more bytes should follow")]
    Truncated {
        /// Minimum number of bytes missing from the part that was being read.
        missing: u64,
    },
    /// The archive ends after extended headers, without the entry that they describe.
    #[error("the archive is truncated: it ends after a long name or pax header")]
    Dangling,
    /// A pax extended header does not consist of valid records.
    #[error("the archive is damaged: the pax header {0}")]
    Pax(&'static str),
    /// A sparse map contradicts itself or the header.
    #[error("the archive is damaged: the sparse map {0}")]
    Sparse(String),
    /// A part of the archive is larger than the limit for reading it into memory.
    #[error("{what} of {needed} is larger than the limit of {limit}")]
    Limit {
        /// The part that is too large, with its unit.
        what: &'static str,
        /// Minimum size of the part.
        needed: u64,
        /// The largest size that is accepted.
        limit: u64,
    },
    /// A list whose length depends on the archive needs more memory than the budget allows.
    #[error("the list of the archive's entries {0}")]
    Memory(#[from] MemoryLimitError),
    /// Too many bytes of the archive belong to entries that are not needed; it may never end.
    #[error(
        "{passed} bytes of the archive belong to files that are not needed: it may be endless; unpack it and send the files"
    )]
    Endless {
        /// Number of unwanted bytes so far.
        passed: u64,
    },
    /// An entry type that this reader does not support.
    #[error(
        "entries of type `{0}` are not supported: archive regular files, directories and links only"
    )]
    UnknownType(String),
    /// A device node or another special file.
    #[error("{0} is refused: archive regular files, directories and links only")]
    Special(&'static str),
    /// A file name that is unsafe or invalid.
    #[error("the name {0}")]
    Name(&'static str),
    /// The entry lies behind a symbolic link.
    #[error(
        "the path of the entry leads through the symbolic link `{0}`, which may point anywhere"
    )]
    BehindSymlink(String),
    /// The entry lies below something that is not a directory.
    #[error("the entry lies below `{0}`, which is not a directory")]
    BelowFile(String),
    /// The entry would have to replace a directory that is not empty.
    #[error("cannot replace a directory that is not empty: {0}")]
    Occupied(String),
    /// A hard link that cannot be created.
    #[error("its hard link target `{target}` {reason}")]
    HardLink {
        /// Name of the link's target.
        target: String,
        /// Why the target cannot be linked.
        reason: &'static str,
    },
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
    /// An OVA that contains more than one disk image.
    #[error(
        "the OVA contains more than one disk image: `{first}` came before this one. Unpack it and import them one by one"
    )]
    SeveralDisks {
        /// Name of the first disk image.
        first: String,
    },
    /// The disk image in an OVA is not a regular file.
    #[error("the disk image in the OVA {0}: it must be a regular file")]
    Disk(&'static str),
    /// The OVA's manifest contains an invalid digest for the disk image.
    #[error("the digest in the manifest {0}")]
    Manifest(String),
    /// Two entries may be the disk image: an earlier candidate, and a later one that is certainly
    /// one.
    #[error(
        "`{first}` came before this entry, and both may be the disk image: archive only one of them"
    )]
    TwoDiskImages {
        /// Name of the earlier candidate.
        first: String,
    },
}

impl ArchiveErrorKind {
    /// Returns an error if `needed` units of `what` exceed `limit`.
    pub fn check_limit(what: &'static str, needed: u64, limit: u64) -> Result<(), Self> {
        if needed <= limit {
            return Ok(());
        }
        Err(Self::Limit { what, needed, limit })
    }
}
