//! Which format an image has, by its first bytes.

use std::fmt;
use std::str::FromStr;

/// A disk image format. Only the first two are converted by this version; the others are recognised in order
/// to be refused by name instead of being written to a disk as if they were one.
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
    /// VMware text descriptor, whose extents are other files.
    VmdkDescriptor,
    /// VirtualBox.
    Vdi,
    /// Connectix / Microsoft Virtual PC, dynamic or differencing.
    Vhd,
    /// Hyper-V.
    Vhdx,
    /// Parallels expanding image.
    Parallels,
}

/// Bytes that [`Format::detect`] wants to see: the VDI signature ends at 0x44, the first sector has all of it.
pub const DETECT_BYTES: usize = 512;

impl Format {
    /// Decides by content. `head` is the beginning of the image, [`DETECT_BYTES`] or all there is.
    ///
    /// Signatures: qcow2.rst "Header" (`QFI\xfb`, version), qed_spec (`QED\0`), VMDK 5.0 technical note (`KDMV`,
    /// `COWD`), VDICore.h (0xBEDA107F at 0x40), VHD 1.0 ("conectix"), MS-VHDX 2.2.1 ("vhdxfile"), Parallels docs.
    pub fn detect(head: &[u8]) -> Self {
        const VDI_SIGNATURE: &[u8] = &[0x7f, 0x10, 0xda, 0xbe];
        match head {
            [b'Q', b'F', b'I', 0xfb, 0, 0, 0, 1, ..] => Self::Qcow1,
            [b'Q', b'F', b'I', 0xfb, ..] => Self::Qcow2,
            [b'Q', b'E', b'D', 0, ..] => Self::Qed,
            [b'K', b'D', b'M', b'V', ..] => Self::Vmdk,
            [b'C', b'O', b'W', b'D', ..] => Self::VmdkCowd,
            _ if head.starts_with(b"# Disk DescriptorFile") => Self::VmdkDescriptor,
            _ if head.starts_with(b"conectix") => Self::Vhd,
            _ if head.starts_with(b"vhdxfile") => Self::Vhdx,
            _ if head.starts_with(b"WithoutFreeSpace") || head.starts_with(b"WithouFreSpacExt") => {
                Self::Parallels
            }
            _ if head.get(0x40..0x44) == Some(VDI_SIGNATURE) && head.starts_with(b"<<< ") => Self::Vdi,
            _ => Self::Raw,
        }
    }

    /// The name that qemu-img uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Qcow1 => "qcow",
            Self::Qed => "qed",
            Self::Vmdk => "vmdk",
            Self::VmdkCowd => "vmdk (COWD)",
            Self::VmdkDescriptor => "vmdk (text descriptor)",
            Self::Vdi => "vdi",
            Self::Vhd => "vpc (VHD)",
            Self::Vhdx => "vhdx",
            Self::Parallels => "parallels",
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
            _ => Err(format!("unknown format \"{name}\": raw and qcow2 are supported")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_recognised() {
        let mut vdi = b"<<< Oracle VM VirtualBox Disk Image >>>\n".to_vec();
        vdi.resize(0x40, 0);
        vdi.extend([0x7f, 0x10, 0xda, 0xbe]);
        for (head, format) in [
            (&b"QFI\xfb\0\0\0\x03"[..], Format::Qcow2),
            (b"QFI\xfb\0\0\0\x02", Format::Qcow2),
            (b"QFI\xfb\0\0\0\x01", Format::Qcow1),
            (b"KDMV", Format::Vmdk),
            (b"# Disk DescriptorFile\n", Format::VmdkDescriptor),
            (b"conectix", Format::Vhd),
            (b"vhdxfile", Format::Vhdx),
            (&vdi, Format::Vdi),
            (b"", Format::Raw),
            (b"\xeb\x63\x90", Format::Raw),
        ] {
            assert_eq!(Format::detect(head), format);
        }
    }

    #[test]
    fn a_short_head_is_raw() {
        assert_eq!(Format::detect(b"QFI"), Format::Raw);
    }
}
