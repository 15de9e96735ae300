//! The disk image formats and their names.

use std::fmt;
use std::str::FromStr;

/// A disk image format. The formats that [`FromStr`] accepts can be read. The others are
/// recognised so that they can be refused by name; otherwise they would be written to the disk as
/// if they were raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// The bytes are the disk itself (also ISO images).
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
    /// All formats. The readable ones come first.
    pub(crate) const ALL: [Self; 15] = [
        Self::Raw,
        Self::Qcow2,
        Self::Vmdk,
        Self::Vdi,
        Self::Vhd,
        Self::Vhdx,
        Self::Qcow1,
        Self::Qed,
        Self::VmdkCowd,
        Self::VmdkSeSparse,
        Self::VmdkDescriptor,
        Self::Parallels,
        Self::Bochs,
        Self::Cloop,
        Self::Dmg,
    ];

    /// Returns the name used in messages, and the names that a user may pass: the usual one first,
    /// QEMU's last. Users cannot pass formats that cannot be read, so these have no such names.
    const fn name_and_flags(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Raw => ("raw", &["raw"]),
            Self::Qcow2 => ("qcow2", &["qcow2"]),
            Self::Vmdk => ("vmdk", &["vmdk"]),
            Self::Vdi => ("vdi", &["vdi"]),
            Self::Vhd => ("vpc (VHD)", &["vhd", "vpc"]),
            Self::Vhdx => ("vhdx", &["vhdx"]),
            Self::Qcow1 => ("qcow", &[]),
            Self::Qed => ("qed", &[]),
            Self::VmdkCowd => ("vmdk (COWD)", &[]),
            Self::VmdkSeSparse => ("vmdk (seSparse)", &[]),
            Self::VmdkDescriptor => ("vmdk (text descriptor)", &[]),
            Self::Parallels => ("parallels", &[]),
            Self::Bochs => ("bochs", &[]),
            Self::Cloop => ("cloop", &[]),
            Self::Dmg => ("dmg", &[]),
        }
    }

    /// Returns the name used in messages. It begins with the name that qemu-img uses.
    pub const fn name(self) -> &'static str {
        self.name_and_flags().0
    }

    /// Returns the usual name that a user passes to request the format.
    pub fn flag_name(self) -> &'static str {
        let (name, choices) = self.name_and_flags();
        choices.first().copied().unwrap_or(name)
    }

    /// Returns the name that qemu-img uses.
    pub fn qemu_name(self) -> &'static str {
        let (name, choices) = self.name_and_flags();
        choices.last().copied().unwrap_or(name)
    }

    /// Returns the formats that a user can request.
    pub fn readable_formats() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|format| !format.name_and_flags().1.is_empty())
    }

    /// Lists the formats that a user can request, for help texts. `name` selects which name of
    /// each format is shown.
    pub fn list_readable(name: fn(Self) -> &'static str) -> String {
        Self::readable_formats().map(name).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    /// Parses the name of a format that a user can request.
    fn from_str(name: &str) -> Result<Self, String> {
        Self::readable_formats()
            .find(|format| format.name_and_flags().1.contains(&name))
            .ok_or_else(|| {
                let list = Self::list_readable(Self::flag_name);
                let (first, last) = list.rsplit_once(", ").unwrap_or_default();
                format!("unknown format \"{name}\": use {first} or {last}")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_listed_once() {
        for (index, format) in Format::ALL.into_iter().enumerate() {
            assert_eq!(Format::ALL.iter().position(|other| *other == format), Some(index));
        }
        assert!(Format::ALL.contains(&Format::Dmg), "the last variant of the enum");
    }

    #[test]
    fn every_readable_format_can_be_requested() {
        for format in Format::readable_formats() {
            assert_eq!(format.flag_name().parse(), Ok(format));
            assert_eq!(format.qemu_name().parse(), Ok(format));
        }
        assert_eq!(
            "qed".parse::<Format>().unwrap_err(),
            "unknown format \"qed\": use raw, qcow2, vmdk, vdi, vhd or vhdx"
        );
    }
}
