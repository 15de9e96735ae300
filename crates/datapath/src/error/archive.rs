//! Trouble with an archive.

use std::fmt;

use crate::memory::MemoryLimitError;

/// An archive that is damaged, unsupported, or would reach what is not its own.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub struct ArchiveError {
    /// The fault.
    #[source]
    pub kind: ArchiveErrorKind,
    /// Byte of the tar, below all compression, at which the header of the entry begins.
    pub offset: u64,
    /// The entry's name, as far as it is known and with everything unprintable escaped.
    pub entry: Option<String>,
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, offset, entry } = self;
        match entry {
            _ if matches!(kind, ArchiveErrorKind::NoDiskImage | ArchiveErrorKind::NoDisk { .. }) => {
                write!(f, "{kind}")
            }
            Some(entry) => write!(f, "{kind} (entry `{entry}` at byte {offset:#x} of the tar)"),
            None => write!(f, "{kind} (at byte {offset:#x} of the tar)"),
        }
    }
}

/// The fault of an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveErrorKind {
    /// The first header is none.
    #[error(
        "this does not look like a tar archive: send a tar file, compressed or not, or use the content type kubevirt for a disk image"
    )]
    NotTar,
    /// A header whose bytes do not add up.
    #[error("the archive is damaged: the checksum of a header is {stored}, its bytes add up to {calculated}")]
    HeaderChecksum {
        /// As the header says; -1 if that is no number.
        stored: i64,
        /// The sum.
        calculated: i64,
    },
    /// A header field that is not a number, or one that makes no sense.
    #[error("the archive is damaged: `{value}` is not a valid {field}")]
    Number {
        /// Name of the field.
        field: &'static str,
        /// The text that is there instead.
        value: String,
    },
    /// The stream ends inside an entry.
    #[error("the archive is cut short: {missing} more bytes should follow")]
    Truncated {
        /// Bytes of the part that was being read, at least.
        missing: u64,
    },
    /// Headers that describe an entry that does not come.
    #[error("the archive is cut short: a long name or pax header is the last one")]
    Dangling,
    /// Something follows a block of zeros that is not another one.
    #[error(
        "the archive is damaged: a block of zeros is followed by something else than another one, which would end it"
    )]
    LoneZeroBlock,
    /// An extended header that is not made of records.
    #[error("the archive is damaged: the pax header {0}")]
    Pax(&'static str),
    /// A sparse map that contradicts itself or the header.
    #[error("the archive is damaged: the sparse map {0}")]
    Sparse(String),
    /// Something is larger than we are willing to read into memory.
    #[error("{what} of {needed} is larger than the limit of {limit}")]
    Limit {
        /// The thing, and its unit.
        what: &'static str,
        /// Its size, at least.
        needed: u64,
        /// The largest size that is taken.
        limit: u64,
    },
    /// A list that the archive makes long needs more memory than there is.
    #[error("a list of what is in the archive {0}")]
    Memory(#[from] MemoryLimitError),
    /// The archive goes on and on with bytes that are not wanted.
    #[error(
        "{passed} bytes of the archive are not those of a file that is wanted: it may never end; unpack it and send the files"
    )]
    Endless {
        /// Bytes so far.
        passed: u64,
    },
    /// An entry that could only be made by somebody who knows its type.
    #[error("entries of type `{0}` are not supported: archive regular files, directories and links only")]
    UnknownType(String),
    /// A device.
    #[error("{0} is refused: archive regular files, directories and links only")]
    Special(&'static str),
    /// A name that must not be followed.
    #[error("the name {0}")]
    Name(&'static str),
    /// The entry lies behind a symbolic link.
    #[error("the entry lies behind the symbolic link `{0}`, which may lead anywhere")]
    BehindSymlink(String),
    /// The entry lies below something that is not a directory.
    #[error("the entry lies below `{0}`, which is not a directory")]
    BelowFile(String),
    /// A directory that is not empty is where something else has to be.
    #[error("a directory that is not empty is in the way: {0}")]
    Occupied(String),
    /// A hard link that cannot be made.
    #[error("its hard link target `{target}` {reason}")]
    HardLink {
        /// The target's name.
        target: String,
        /// The fault of it.
        reason: &'static str,
    },
    /// A symbolic link that cannot be made.
    #[error("its symbolic link target {0}")]
    Symlink(&'static str),
    /// The files are more than there is room for. The text is matched by CDI's controllers.
    #[error(
        "{needed} bytes of files are larger than the reported available storage {available}. A larger PVC is required"
    )]
    NoRoom {
        /// Bytes of file data up to the end of the entry.
        needed: u64,
        /// Bytes that there is room for.
        available: u64,
    },
    /// The disk of a clone is not there. The text is upstream's.
    #[error("no disk image found in tar")]
    NoDiskImage,
    /// The first header of what should be an OVA is none.
    #[error("this does not look like an OVA, which is a tar with a disk image in it")]
    NotAppliance,
    /// An OVA without a disk.
    #[error(
        "the OVA holds no disk image, which would be a file called *.vmdk, *.vhd, *.vhdx, *.vdi, *.qcow2, *.img or *.raw; it holds {others}"
    )]
    NoDisk {
        /// The names of its entries, the first ones.
        others: String,
    },
    /// An OVA with more than one disk.
    #[error(
        "the OVA holds more than one disk image: `{first}` came before this one. Unpack it and import them one by one"
    )]
    SeveralDisks {
        /// The first.
        first: String,
    },
    /// The disk of an OVA is not a plain file.
    #[error("the disk image in the OVA {0}: it has to be a plain file")]
    Disk(&'static str),
    /// The manifest of an OVA has a digest of the disk that makes no sense.
    #[error("the digest in the manifest {0}")]
    Manifest(String),
    /// A file that may be the disk, and later one that is.
    #[error("`{first}` came before this entry, and both may be the disk image: archive only one of them")]
    TwoDiskImages {
        /// The first.
        first: String,
    },
}

impl ArchiveErrorKind {
    /// Fails if there is more of `what` than `limit`.
    pub(crate) fn check_limit(what: &'static str, needed: u64, limit: u64) -> Result<(), Self> {
        if needed <= limit {
            return Ok(());
        }
        Err(Self::Limit { what, needed, limit })
    }
}
