//! The formats by name.

use std::fmt;
use std::str::FromStr;

/// A disk image format. Those that [`FromStr`] takes are read; the others are recognised in order to be refused by name
/// instead of being written to a disk as if they were one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// The bytes are the disk (also ISO images).
    Raw,
    /// QEMU copy-on-write, version 2 or 3.
    Qcow2,
    /// QEMU copy-on-write, version 1.
    Qcow1,
    /// QEMU enhanced disk.
    Qed,
    /// VMware sparse extent (`KDMV`), also streamOptimized.
    Vmdk,
    /// VMware COW disk (`COWD`).
    VmdkCowd,
    /// VMware space-efficient sparse extent.
    VmdkSeSparse,
    /// VMware text descriptor, whose extents are other files.
    VmdkDescriptor,
    /// VirtualBox.
    Vdi,
    /// Connectix / Microsoft Virtual PC.
    Vhd,
    /// Hyper-V.
    Vhdx,
    /// Parallels expanding image.
    Parallels,
    /// Bochs.
    Bochs,
    /// Compressed loop.
    Cloop,
    /// Apple disk image.
    Dmg,
}

impl Format {
    /// The name that qemu-img uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Qcow1 => "qcow",
            Self::Qed => "qed",
            Self::Vmdk => "vmdk",
            Self::VmdkCowd => "vmdk (COWD)",
            Self::VmdkSeSparse => "vmdk (seSparse)",
            Self::VmdkDescriptor => "vmdk (text descriptor)",
            Self::Vdi => "vdi",
            Self::Vhd => "vpc (VHD)",
            Self::Vhdx => "vhdx",
            Self::Parallels => "parallels",
            Self::Bochs => "bochs",
            Self::Cloop => "cloop",
            Self::Dmg => "dmg",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    /// The formats that a user can ask for.
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "raw" => Ok(Self::Raw),
            "qcow2" => Ok(Self::Qcow2),
            "vmdk" => Ok(Self::Vmdk),
            "vdi" => Ok(Self::Vdi),
            "vhd" | "vpc" => Ok(Self::Vhd),
            "vhdx" => Ok(Self::Vhdx),
            _ => Err(format!(
                "unknown format \"{name}\": there are raw, qcow2, vmdk, vdi, vhd and vhdx"
            )),
        }
    }
}
