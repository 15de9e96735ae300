//! The reasons why an image is refused.

use crate::Format;
use crate::offsets::{Guest, Host};

/// The reason why an image is refused. The message also states what the user can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The format is known, but this version cannot read it.
    #[error(
        "the image is in {0} format, which this version does not convert: convert it once with `qemu-img convert -O qcow2`"
    )]
    UnsupportedFormat(Format),
    /// The content is not in the requested format.
    #[error("the image is not in {wanted} format: its first bytes are {found}")]
    NotThatFormat {
        /// The requested format.
        wanted: Format,
        /// The format of the content.
        found: Format,
    },
    /// A consistency check was requested for a raw disk.
    #[error("the image is raw: it has no structure that could be checked")]
    NothingToCheck,
    /// The content matches two formats.
    #[error("the image could be in {first} or {second} format: choose one with --format")]
    Ambiguous {
        /// One of them.
        first: &'static str,
        /// The other one.
        second: &'static str,
    },
    /// This kind of image is not supported, although its format is.
    #[error("the {format} image is not supported: {what}")]
    Unsupported {
        /// The format.
        format: Format,
        /// The unsupported kind, and a remedy.
        what: String,
    },
    /// A header field has a value that the format does not allow.
    #[error("invalid {format} image: {what}")]
    Header {
        /// The format.
        format: Format,
        /// The field, its value and the allowed values.
        what: String,
    },
    /// The image ends inside the header, or a longer head has to be read.
    #[error("invalid {format} image: the header needs {needed} bytes, the image has {available}")]
    ShortHeader {
        /// The format.
        format: Format,
        /// Length of the header in bytes.
        needed: u64,
        /// Bytes that are available.
        available: u64,
    },
    /// The image refers to a backing file.
    #[error(
        "the image has a backing file \"{0}\": other files are never opened; flatten it first with `qemu-img convert -O qcow2`"
    )]
    BackingFile(String),
    /// The guest data is in another file.
    #[error(
        "the image keeps its data in an external data file \"{0}\": other files are never opened; convert it first with `qemu-img convert -O qcow2`"
    )]
    DataFile(String),
    /// Some of the guest data is in another file.
    #[error(
        "the image keeps its data in another file \"{name}\" ({what}): other files are never opened; convert it first with `qemu-img convert -O qcow2`"
    )]
    ExternalFile {
        /// The part of the image that refers to it.
        what: &'static str,
        /// The name of the other file.
        name: String,
    },
    /// The image stores only the differences to another image, its parent.
    #[error(
        "the {format} image stores only the differences to another{}: other files are never opened; {}",
        named(.name), merge_advice(*.format)
    )]
    Parent {
        /// The format.
        format: Format,
        /// Name or identity of the parent; empty if the image does not name it.
        name: String,
    },
    /// The guest data is encrypted by QEMU.
    #[error("the image is encrypted ({0}): decrypt it first with `qemu-img convert` and its key")]
    Encrypted(&'static str),
    /// The header sets unknown incompatible feature bits.
    #[error("the image uses unsupported incompatible feature(s): {0}")]
    UnknownFeatures(String),
    /// A table or a table entry is invalid.
    #[error("corrupt {format} image: {what} (at image offset {offset:#x}): {}", .format.repair_advice())]
    Corrupt {
        /// The format.
        format: Format,
        /// Description of the damage.
        what: String,
        /// Offset of the damage.
        offset: Host,
    },
    /// A compressed cluster does not inflate to a whole cluster.
    #[error(
        "corrupt image: the compressed cluster of guest offset {guest:#x} does not inflate to {cluster_size} bytes: {reason}"
    )]
    CompressedCluster {
        /// Guest offset of the cluster.
        guest: Guest,
        /// Bytes that it must inflate to.
        cluster_size: u64,
        /// The message of the decoder.
        reason: String,
    },
    /// The image ends before something that its tables refer to.
    #[error(
        "the image is truncated: {what} at image offset {offset:#x} is needed, the image ends at {end:#x}"
    )]
    Truncated {
        /// The missing part.
        what: &'static str,
        /// Offset where it should be.
        offset: Host,
        /// The end of the image.
        end: Host,
    },
    /// One-pass reading only: the image refers to data more often than the data's refcount states.
    /// The data was already released, after that many references.
    #[error(
        "the image's refcounts contradict its tables: {what} at image offset {offset:#x} is referred to more often than it is counted: repair the image with `qemu-img check -r all`, or convert it once with `qemu-img convert -O qcow2`"
    )]
    RefcountContradiction {
        /// The part that was released.
        what: &'static str,
        /// Offset where it was.
        offset: Host,
    },
    /// The sink does not store parts of the image, so it supports only images whose map is
    /// complete.
    #[error(
        "the part of the image at offset {offset:#x} cannot be kept until a table refers to it"
    )]
    CannotPark {
        /// Offset of the part.
        offset: Host,
    },
    /// One-pass reading only: the image refers back to data that has already passed, and nothing
    /// before that data announced the later reference.
    #[error(
        "the {format} image cannot be read in one pass: {what} at image offset {offset:#x} is needed again after it has passed: serve \
         it uncompressed from a server that supports ranges, or convert it once with `qemu-img convert -O qcow2`"
    )]
    Passed {
        /// The format.
        format: Format,
        /// The part that is needed.
        what: &'static str,
        /// Offset where it was.
        offset: Host,
    },
    /// References that the format allows but that no program writes. Following them could cost any
    /// amount of time or memory, even for a small image.
    #[error(
        "the {format} image is not supported: {what} (at image offset {offset:#x}), which no program writes and which could take \
         unlimited time to follow: convert it once with `qemu-img convert -O qcow2`"
    )]
    TooEntangled {
        /// The format.
        format: Format,
        /// The kind of references.
        what: &'static str,
        /// The offset that they refer to.
        offset: Host,
    },
    /// The map of the image needs more memory than is available.
    #[error(
        "the tables of the image need more than the {available} bytes of memory that are left for them: give the import more memory, or \
         convert the image once with `qemu-img convert -O qcow2`, which puts it in order"
    )]
    MapTooLarge {
        /// Bytes that are available for the map.
        available: u64,
    },
}

impl Error {
    /// Creates the error for an image that ends at `end`, before `what` at `offset`.
    pub fn truncated_error(what: &'static str, offset: Host, end: Host) -> Self {
        Self::Truncated { what, offset, end }
    }

    /// Returns what to do about a damaged image, if the message does not say it.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Header { what, .. } if what.contains("`qemu-img") => None,
            Self::Header { format, .. } | Self::ShortHeader { format, .. } => {
                Some(format.repair_advice())
            }
            Self::CompressedCluster { .. } | Self::Truncated { .. } => {
                Some("compare it with its checksum, or export it again")
            }
            _ => None,
        }
    }
}

impl Format {
    /// Creates the error for a header value that the format does not allow.
    pub(crate) fn header_error(self, what: impl Into<String>) -> Error {
        let what = what.into();
        Error::Header { format: self, what }
    }

    /// Creates the error for an L1 table, or the grain directory of a VMDK, that is larger than any
    /// image needs. The limit is the same as in QEMU, and CDI's tests match the message.
    pub(crate) fn large_l1_error(self, entries: u64, limit: u64) -> Error {
        self.header_error(format!("L1 size too big: {entries} entries, the limit is {limit}"))
    }

    /// Creates the error for an unsupported kind of image within this format.
    pub(crate) fn unsupported_error(self, what: impl Into<String>) -> Error {
        let what = what.into();
        Error::Unsupported { format: self, what }
    }

    /// Creates the error for an invalid table or table entry at `offset`.
    pub(crate) fn corrupt_error(self, what: impl Into<String>, offset: Host) -> Error {
        Error::Corrupt { format: self, what: what.into(), offset }
    }

    /// Creates the error for references to `offset` that no program writes.
    pub fn entangled_error(self, what: &'static str, offset: Host) -> Error {
        Error::TooEntangled { format: self, what, offset }
    }

    /// Returns what to do about a damaged image. `qemu-img check` supports only these two formats.
    pub const fn repair_advice(self) -> &'static str {
        match self {
            Self::Qcow2 | Self::Vhdx => {
                "export it again, or repair a copy with `qemu-img check -r all`"
            }
            _ => "export or download it again",
        }
    }

    /// Creates the error for a header of `needed` bytes, when `head` is shorter.
    pub(crate) fn short_header_error(self, needed: u64, head: &[u8]) -> Error {
        Error::ShortHeader { format: self, needed, available: head.len() as u64 }
    }
}

/// Returns how to merge an image of differences with its parent. qemu-img reads only the parents of
/// VMDK images. It opens a VHD without its parent, exits with 0, and the disk is wrong.
const fn merge_advice(format: Format) -> &'static str {
    match format {
        Format::Vhd | Format::Vhdx => {
            "merge it with its parent first, with `Merge-VHD` in Hyper-V, or with `VBoxManage clonemedium`"
        }
        Format::Vdi => "merge it with its parent first, with `VBoxManage clonemedium`",
        _ => "flatten it first with `qemu-img convert -O qcow2`",
    }
}

/// Formats the name as ` "name"`, or as nothing if it is empty.
fn named(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" \"{name}\"") }
}
