//! The form of a volume.

use std::fmt;
use std::str::FromStr;

/// The form of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VolumeMode {
    /// A file system, which keeps a part for itself.
    #[default]
    Filesystem,
    /// A device.
    Block,
}

impl fmt::Display for VolumeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        })
    }
}

impl FromStr for VolumeMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "Filesystem" | "filesystem" => Ok(Self::Filesystem),
            "Block" | "block" => Ok(Self::Block),
            _ => Err("use Filesystem or Block"),
        }
    }
}
