//! Facts about an image that are known before its first data byte.

use std::fmt;

use diskimage::Format;

/// Largest possible size of a file or device in bytes: offsets are signed (`off_t`), and sizes are
/// whole sectors.
pub const MAX_DISK_BYTES: u64 = i64::MAX.unsigned_abs() / 512 * 512;

/// The way in which an image was read and written to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteTaken {
    /// The stream itself is the disk.
    Raw,
    /// The map was read first, with range requests.
    Ranged,
    /// The map was read while the stream passed.
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

/// Facts about an image that are known once its format is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// Names of the layers around the image, outermost first.
    pub layers: Vec<&'static str>,
    /// The image format inside the layers.
    pub format: Format,
    /// Size of the virtual disk in bytes. `None` for raw images whose size is known only at the
    /// end.
    pub virtual_size: Option<u64>,
    /// The route by which the image is read.
    pub route: RouteTaken,
    /// A sentence about an image that is probably not a disk.
    pub warning: Option<&'static str>,
}
