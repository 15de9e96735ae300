//! The reasons why an image is refused.

use crate::Format;
use crate::offsets::{Guest, Host};

/// A reason, as a sentence that tells what the user can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The format is known but this version does not read it.
    #[error(
        "the image is in {0} format, which this version does not convert: convert it once with `qemu-img convert -O qcow2`"
    )]
    UnsupportedFormat(Format),
    /// A format was asked for that the content is not.
    #[error("the image is not in {wanted} format: its first bytes are {found}")]
    NotThatFormat {
        /// The format that was asked for.
        wanted: Format,
        /// The format of the content.
        found: Format,
    },
    /// A raw disk is asked whether it is consistent.
    #[error("the image is raw: it has no structure of its own that could be checked")]
    NothingToCheck,
    /// The content is that of two formats.
    #[error("the image could be in {first} format and in {second} format: say which with --format")]
    Ambiguous {
        /// One.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A kind of image within a format that is not read.
    #[error("the {format} image is not supported: {what}")]
    Unsupported {
        /// The format.
        format: Format,
        /// The kind, and the remedy.
        what: String,
    },
    /// A header field has a value that the format does not allow.
    #[error("invalid {format} image: {what}")]
    Header {
        /// The format.
        format: Format,
        /// The field, and both values.
        what: String,
    },
    /// The file ends inside the header, or more of it has to be seen.
    #[error("invalid {format} image: the header needs {needed} bytes, the image has {available}")]
    ShortHeader {
        /// The format.
        format: Format,
        /// Bytes that the header takes.
        needed: u64,
        /// Bytes there are.
        available: u64,
    },
    /// The L1 table, or the grain directory of a VMDK, is larger than any image needs (text matched by CDI's tests).
    #[error("invalid {format} image: L1 size too big: {entries} entries, the limit is {limit}")]
    L1TooBig {
        /// The format.
        format: Format,
        /// Entries that the header announces.
        entries: u64,
        /// Entries that are allowed, as by QEMU.
        limit: u64,
    },
    /// The L1 table cannot map the virtual size.
    #[error(
        "invalid qcow2 image: L1 table is too small: {entries} entries, a virtual size of {virtual_size} needs {needed}"
    )]
    L1TooSmall {
        /// Entries that the header announces.
        entries: u64,
        /// Entries that the size needs.
        needed: u64,
        /// Bytes of the virtual disk.
        virtual_size: u64,
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
        /// Its name.
        name: String,
    },
    /// The image is the difference to another.
    #[error(
        "the {format} image is the difference to another{}: other files are never opened; flatten it first with `qemu-img convert -O qcow2`", named(.name)
    )]
    Parent {
        /// The format.
        format: Format,
        /// The other's name or identity, empty if the image does not say.
        name: String,
    },
    /// The guest data is encrypted by QEMU.
    #[error("the image is encrypted ({0}): decrypt it first with `qemu-img convert` and its key")]
    Encrypted(&'static str),
    /// Incompatible feature bits that are not known here.
    #[error("the image uses unsupported incompatible feature(s): {0}")]
    UnknownFeatures(String),
    /// A table or a table entry is wrong.
    #[error("corrupt {format} image: {what} (at image offset {offset:#x}): {}", advice(*.format))]
    Corrupt {
        /// The format.
        format: Format,
        /// The mistake.
        what: String,
        /// Its place.
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
        /// The sentence of the decoder.
        reason: String,
    },
    /// The file ends before something that its tables refer to.
    #[error(
        "the image is truncated: {what} at image offset {offset:#x} is needed, the image ends at {end:#x}"
    )]
    Truncated {
        /// The missing part.
        what: &'static str,
        /// The place where it should be.
        offset: Host,
        /// The end of the image.
        end: Host,
    },
    /// One pass only: something is referred to more often than the image counts it, and was let go after that many times.
    #[error(
        "the image's refcounts contradict its tables: {what} at image offset {offset:#x} is referred to more often than it is counted: repair the image with `qemu-img check -r all`, or convert it once with `qemu-img convert -O qcow2`"
    )]
    RefcountContradiction {
        /// The part that was let go.
        what: &'static str,
        /// The place where it was.
        offset: Host,
    },
    /// One pass only: something is referred to again after it has passed, and nothing told that it would be.
    #[error(
        "the {format} image cannot be read in one pass: {what} at image offset {offset:#x} is needed again after it has passed: serve it uncompressed from a server with ranges, or convert it once with `qemu-img convert -O qcow2`"
    )]
    Passed {
        /// The format.
        format: Format,
        /// The part that is needed.
        what: &'static str,
        /// The place where it was.
        offset: Host,
    },
    /// References that the format allows, that no program writes, and that could make a small image cost any time or memory.
    #[error(
        "the {format} image is not supported: {what} (at image offset {offset:#x}), which no program writes and which may take any time to follow: convert it once with `qemu-img convert -O qcow2`"
    )]
    TooEntangled {
        /// The format.
        format: Format,
        /// The kind of references.
        what: &'static str,
        /// The place that they refer to.
        offset: Host,
    },
    /// The map of the image takes more memory than there is for it.
    #[error(
        "the tables of the image need more than the {available} bytes of memory that are left for them: give the import more memory, or convert the image once with `qemu-img convert -O qcow2`, which orders it"
    )]
    MapTooLarge {
        /// Bytes that they may take.
        available: u64,
    },
}

impl Format {
    /// The header of an image of this format has a value that the format does not allow.
    pub(crate) fn header_error(self, what: impl Into<String>) -> Error {
        let what = what.into();
        Error::Header { format: self, what }
    }

    /// The image is of a kind within this format that is not read.
    pub(crate) fn unsupported_error(self, what: impl Into<String>) -> Error {
        let what = what.into();
        Error::Unsupported { format: self, what }
    }

    /// The table or table entry at `offset` of an image of this format is wrong.
    pub(crate) fn corrupt_error(self, what: impl Into<String>, offset: Host) -> Error {
        Error::Corrupt { format: self, what: what.into(), offset }
    }

    /// The header of an image of this format takes `needed` bytes, which `head` does not have.
    pub(crate) fn short_header_error(self, needed: u64, head: &[u8]) -> Error {
        Error::ShortHeader { format: self, needed, available: head.len() as u64 }
    }
}

/// The advice for a damaged image. Of a VMDK, qemu-img checks no more than whether its grains are within the file.
const fn advice(format: Format) -> &'static str {
    match format {
        Format::Vmdk => "export or download it again",
        _ => "check it with `qemu-img check`",
    }
}

/// ` "name"`, or nothing.
fn named(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" \"{name}\"") }
}
