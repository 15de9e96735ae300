//! Facts about an image that are known before its first data byte.

use std::fmt;

use diskimage::Format;

/// Bytes that a file or device can have at most: offsets are signed (`off_t`), and whole sectors.
pub const MAX_DISK_BYTES: u64 = i64::MAX.unsigned_abs() / 512 * 512;

/// The route that an image takes to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteTaken {
    /// The stream is the disk.
    Raw,
    /// The map was read first.
    Ranged,
    /// The map was read as it passed.
    OnePass,
}

impl fmt::Display for RouteTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Ranged => "ranged",
            Self::OnePass => "one-pass",
        })
    }
}

/// An image, as it was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// Names of the layers around the image, outermost first.
    pub layers: Vec<&'static str>,
    /// The image format below them.
    pub format: Format,
    /// Bytes of the virtual disk; `None` for raw images whose length only their end tells.
    pub virtual_size: Option<u64>,
    /// The route that the image takes.
    pub route: RouteTaken,
}
