//! Recognition of the format of an image: by its content, once, and without guessing.
//!
//! A file that is a disk image by its signature may at the same time be a disk: a boot sector and a partition table
//! fit around most headers. Then two programs disagree about what the guest sees, which is what such files are made
//! for; they are refused with both names, and `--format` decides. What has no image's signature is a raw disk,
//! whatever else it looks like: hybrids of ISO 9660, MBR and GPT are one disk for every program.
//!
//! No genuine image may be refused for what its guest has written. So the marks of disks count only where the container
//! keeps its own metadata, or where its writers cannot put the guest's bytes that would read as such; see [`marks_end`].

use crate::bytes_at::{be32, le32};
use crate::{Error, Format};

/// The first volume descriptor of ISO 9660: sector 16 of 2048 bytes (ECMA-119, 6.2.1).
const ISO_DESCRIPTOR: usize = 16 * 2048;

/// Bytes that [`Format::detect`] wants to see: the fixed bytes of a volume descriptor are the last ones.
pub const DETECT_BYTES: usize = ISO_DESCRIPTOR + 7;

/// The first signatures of each format: qcow2.rst "Header", qed_spec, VMDK 5.0 technical note (`KDMV`, `COWD`), VHD 1.0
/// "Hard Disk Footer Format", MS-VHDX 2.2.1, QEMU's block drivers for Parallels, Bochs and cloop.
const SIGNATURES: [(&[u8], Format); 12] = [
    (b"QFI\xfb\0\0\0\x01", Format::Qcow1),
    (b"QFI\xfb", Format::Qcow2),
    (b"QED\0", Format::Qed),
    (b"KDMV", Format::Vmdk),
    (b"COWD", Format::VmdkCowd),
    // `constMagic` and the version of seSparse.
    (b"\xbe\xba\xfe\xca\0\0\0\0\x01\0\0\0\x02\0\0\0", Format::VmdkSeSparse),
    (b"conectix", Format::Vhd),
    (b"vhdxfile", Format::Vhdx),
    (b"WithoutFreeSpace", Format::Parallels),
    (b"WithouFreSpacExt", Format::Parallels),
    (b"Bochs Virtual HD Image\0", Format::Bochs),
    (b"#!/bin/sh\n#V2.0 Format\n", Format::Cloop),
];

/// VDI has its signature behind a text (`VDICore.h`, `VDIPREHEADER`).
const VDI_SIGNATURE: u32 = 0xbeda_107f;
const VDI_SIGNATURE_AT: usize = 0x40;

impl Format {
    /// Decides by content. `head` is the beginning of the image, [`DETECT_BYTES`] or all there is.
    pub fn detect(head: &[u8]) -> Result<Self, Error> {
        let ambiguous = |first: Self, second| Err(Error::Ambiguous { first: first.name(), second });
        match *matching_formats(head).as_slice() {
            [] => Ok(Self::Raw),
            [only] => foreign_signature(head, only).map_or(Ok(only), |mark| ambiguous(only, mark)),
            [first, second, ..] => ambiguous(first, second.name()),
        }
    }

    /// Decides, unless the user has done so: anything may be called raw, but an image of a format has its signature.
    pub fn resolve_wanted(head: &[u8], wanted: Option<Self>) -> Result<Self, Error> {
        match wanted {
            None => Self::detect(head),
            Some(Self::Raw) => Ok(Self::Raw),
            Some(wanted) => {
                let found = matching_formats(head);
                if found.contains(&wanted) {
                    return Ok(wanted);
                }
                let found = found.first().copied().unwrap_or(Self::Raw);
                Err(Error::NotThatFormat { wanted, found })
            }
        }
    }
}

/// The formats whose signature `head` has.
fn matching_formats(head: &[u8]) -> Vec<Format> {
    let first =
        SIGNATURES.iter().find(|(signature, _)| head.starts_with(signature)).map(|(_, format)| *format);
    let descriptor = is_vmdk_descriptor(head).then_some(Format::VmdkDescriptor);
    let vdi = (le32(head, VDI_SIGNATURE_AT) == Some(VDI_SIGNATURE)).then_some(Format::Vdi);
    [first, descriptor, vdi].into_iter().flatten().collect()
}

/// A text whose first line that says something is the version of a VMDK descriptor, as QEMU looks for it: comments and
/// lines of spaces may come before.
fn is_vmdk_descriptor(head: &[u8]) -> bool {
    if head.starts_with(b"# Disk DescriptorFile") {
        return true;
    }
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines
        .find(|line| !line.is_empty() && !line.starts_with(b"#"))
        .and_then(|line| line.strip_prefix(b"version="))
        .is_some_and(|version| matches!(version, b"1" | b"2" | b"3"))
}

/// The mark of a disk or an archive that the head of an image of the format `container` has besides.
fn foreign_signature(head: &[u8], container: Format) -> Option<&'static str> {
    let own = head.get(..marks_end(head, container)).unwrap_or(head);
    let has = |at: usize, mark: &[u8]| own.get(at..).is_some_and(|rest| rest.starts_with(mark));
    // A boot sector (UEFI 5.2.1); the header of a GPT with its revision (5.3.2), for sectors of 512 and 4096 bytes.
    if [512, 4096].iter().any(|at| has(*at, b"EFI PART\0\0\x01\0")) {
        Some("GPT")
    } else if has(510, &[0x55, 0xaa]) {
        Some("MBR")
    } else if is_iso(own) {
        Some("ISO 9660")
    } else if is_tar(own) {
        Some("tar")
    } else {
        None
    }
}

/// The part of the head that cannot hold guest bytes which by right look like a mark.
///
/// * qcow2: the header's cluster. With small clusters, the next ones may be the guest's: the 4 KiB clusters of an ISO
///   image, converted, can come to lie where they were. In the header cluster are numbers and names; 0x55 0xaa is
///   no UTF-8.
/// * VMDK: metadata is 64 KiB long and begins with a header padded with zeros and a text. What lies elsewhere is compressed,
///   or in grains at multiples of 64 KiB. VHDX: nothing but 64 KiB of file identifier; the creator's text in it
///   ends long before byte 510.
/// * VDI, VHD: the header is followed by zeros up to byte 512, and by a map there. Blocks of 1 and 2 MiB begin at odd
///   multiples of 512: for byte 32768 to be the guest's own volume descriptor, an ISO image would have to begin
///   inside the guest's disk at no multiple of its sector.
/// * The others are refused anyway.
fn marks_end(head: &[u8], container: Format) -> usize {
    match (container, be32(head, 20)) {
        (Format::Qcow2, Some(cluster_bits @ 9..=21)) => 1 << cluster_bits,
        _ => usize::MAX,
    }
}

/// A volume descriptor of any type: the type, an identifier and a version (ECMA-119, 8.1).
fn is_iso(head: &[u8]) -> bool {
    let Some(descriptor) = head.get(ISO_DESCRIPTOR..) else {
        return false;
    };
    matches!(descriptor, [0..=3 | 255, b'C', b'D', b'0', b'0', b'1', 1, ..])
}

/// A header of a tar whose checksum is right (POSIX.1 `pax`, "ustar Interchange Format"; GNU has spaces for the version).
fn is_tar(head: &[u8]) -> bool {
    const CHECKSUM: std::ops::Range<usize> = 148..156;
    let Some(header) = head.get(..512) else {
        return false;
    };
    let is_ustar = header.get(257..262) == Some(b"ustar");
    let text = header.get(CHECKSUM).unwrap_or_default();
    let stated = std::str::from_utf8(text)
        .ok()
        .and_then(|text| u32::from_str_radix(text.trim_matches([' ', '\0']), 8).ok());
    let counted = |(at, byte): (usize, &u8)| u32::from(if CHECKSUM.contains(&at) { b' ' } else { *byte });
    is_ustar && stated == Some(header.iter().enumerate().map(counted).sum())
}

#[cfg(test)]
mod tests;
