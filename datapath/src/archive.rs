//! Archives: not there yet.

use crate::source::Source;
use crate::{Error, transfer};

/// Where to unpack.
pub struct Options {
    /// The directory.
    pub dir: std::path::PathBuf,
    /// Bytes that there is room for.
    pub available: u64,
}

/// What was unpacked.
pub struct Report {
    /// Entries.
    pub entries: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Bytes of the source.
    pub source_bytes: u64,
    /// Of the source.
    pub checksum: Option<String>,
}

/// Fails.
pub fn unpack(_: &dyn Source, _: &Options, _: &transfer::Options) -> Result<Report, Error> {
    Err(Error::Stopped)
}
