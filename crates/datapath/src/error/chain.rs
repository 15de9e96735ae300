//! Errors of backup chains.

use diskimage::Format;

/// Why files cannot be a backup chain in this order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainOrderError {
    /// The chain has no incremental backup.
    #[error("the chain has no incremental backup: use `cdi-importer convert` for a single image")]
    NoIncrement,
    /// A file is not an image that can be a backup.
    #[error(
        "its format is {found}, and backups are qcow2 (the full one may be raw): name qcow2 files behind the full backup"
    )]
    Format {
        /// The format of the file.
        found: Format,
    },
    /// The first file is not a full backup.
    #[error("its backing file is \"{found}\", so it is not a full backup: begin with the full one")]
    NotFull {
        /// The name of its backing file.
        found: String,
    },
    /// The file follows another one than the user says.
    #[error(
        "its backing file is '{found}', and the file before it is '{before}': name all files of the chain, oldest first"
    )]
    Base {
        /// The backing file's name, without directories.
        found: String,
        /// The name of the file before it.
        before: String,
    },
    /// The file is not newer than the one before it.
    #[error(
        "its folder says that it was made at {created}, and '{before}' before it at {before_created}: name all files of the chain, oldest first"
    )]
    Older {
        /// When the backup was made.
        created: String,
        /// The name of the file before it.
        before: String,
        /// When that backup was made.
        before_created: String,
    },
    /// The disk is smaller than in the file before, which no backup after it can have.
    #[error(
        "its disk has {size} bytes, and the disk of '{before}' before it has {before_size}: disks do not shrink; name all files, oldest first"
    )]
    Shrinks {
        /// Bytes of its disk.
        size: u64,
        /// The name of the file before it.
        before: String,
        /// Bytes of the disk in the file before it.
        before_size: u64,
    },
    /// A file is named twice.
    #[error("'{first}' and '{second}' are the same file: name each file of the chain once")]
    Twice {
        /// The name of the first.
        first: String,
        /// The name of the second.
        second: String,
    },
}
