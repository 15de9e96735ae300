//! Errors in the order of backup chains.

use diskimage::Format;

/// Reasons why files, in the given order, cannot be a backup chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainOrderError {
    /// The chain has no incremental backup.
    #[error("the chain has no incremental backup; use `cdi-importer convert` for a single image")]
    NoIncrement,
    /// A file is not an image that can be a backup.
    #[error(
        "the format is {found}, expected qcow2 (a full backup may also be raw); pass the full backup first, then the incremental ones"
    )]
    Format {
        /// The format of the file.
        found: Format,
    },
    /// The first file is not a full backup.
    #[error("not a full backup: it has the backing file \"{found}\"; pass the full backup first")]
    NotFull {
        /// The name of its backing file.
        found: String,
    },
    /// The file was made on top of another file than the one before it.
    #[error(
        "its backing file is '{found}', but the file before it is '{before}'; pass all files of the chain, oldest first"
    )]
    Base {
        /// The backing file's name, without directories.
        found: String,
        /// The name of the file before it.
        before: String,
    },
    /// The file is not newer than the one before it.
    #[error(
        "its directory is dated {created}, but the directory of '{before}' before it is dated {before_created}; pass all files of the chain, oldest first"
    )]
    Older {
        /// When the backup was made.
        created: String,
        /// The name of the file before it.
        before: String,
        /// When that backup was made.
        before_created: String,
    },
    /// The disk is smaller than in the file before, although disks never shrink.
    #[error(
        "its disk has {size} bytes, but the disk of '{before}' before it has {before_size}, and a disk never shrinks; pass all files of the chain, oldest first"
    )]
    Shrinks {
        /// Bytes of its disk.
        size: u64,
        /// The name of the file before it.
        before: String,
        /// Bytes of the disk in the file before it.
        before_size: u64,
    },
    /// A file occurs twice in the chain.
    #[error("'{first}' and '{second}' are the same file; pass each file of the chain once")]
    Twice {
        /// The name of the first.
        first: String,
        /// The name of the second.
        second: String,
    },
}
