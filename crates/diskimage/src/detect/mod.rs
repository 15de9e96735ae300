//! Detects the format of an image. This is done once, by content, and without guessing.
//!
//! A file with the signature of an image format may also be a valid disk: a boot sector and a
//! partition table fit around most headers. Programs then disagree about what the guest sees, and
//! such files are made for this purpose. They are refused with both names, and `--format` decides.
//! A file without the signature of an image format is a raw disk, whatever else it looks like:
//! hybrids of ISO 9660, MBR and GPT are one disk for every program.
//!
//! A genuine image must not be refused because of the data that its guest has written. Disk
//! signatures therefore count only where the container keeps its own metadata, or where its
//! writers cannot place guest bytes that look like a signature; see [`marks_end`].

use crate::bytes_at::{be32, le32};
use crate::{Error, Format};

/// The first volume descriptor of ISO 9660: sector 16 of 2048 bytes (ECMA-119, 6.2.1).
const ISO_DESCRIPTOR: usize = 16 * 2048;

/// Bytes that [`Format::detect`] needs. The fixed bytes of a volume descriptor are the last ones
/// that it examines.
pub const DETECT_BYTES: usize = ISO_DESCRIPTOR + 7;

/// The signature at the beginning of each format: qcow2.rst "Header", qed_spec, VMDK 5.0 technical
/// note (`KDMV`, `COWD`), VHD 1.0 "Hard Disk Footer Format", MS-VHDX 2.2.1, QEMU's block drivers
/// for Parallels, Bochs and cloop.
const SIGNATURES: [(&[u8], Format); 12] = [
    // Qcow1 comes before qcow2, whose signature is a prefix of this one: the first match counts.
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

/// The signature of VDI, which follows a text (`VDICore.h`, `VDIPREHEADER`).
const VDI_SIGNATURE: u32 = 0xbeda_107f;
const VDI_SIGNATURE_AT: usize = 0x40;

impl Format {
    /// Detects the format by content. `head` is the beginning of the image: [`DETECT_BYTES`], or
    /// all of a shorter image.
    pub fn detect(head: &[u8]) -> Result<Self, Error> {
        let ambiguous = |first: Self, second| Err(Error::Ambiguous { first: first.name(), second });
        match *matching_formats(head).as_slice() {
            [] => Ok(Self::Raw),
            [only] => foreign_signature(head, only).map_or(Ok(only), |mark| ambiguous(only, mark)),
            [first, second, ..] => ambiguous(first, second.name()),
        }
    }

    /// Returns the format that the user requested, otherwise the detected one. Any content may be
    /// requested as raw. Any other format requires its signature.
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

/// Returns all formats whose signature `head` contains.
fn matching_formats(head: &[u8]) -> Vec<Format> {
    let first = SIGNATURES
        .iter()
        .find(|(signature, _)| head.starts_with(signature))
        .map(|(_, format)| *format);
    let descriptor = is_vmdk_descriptor(head).then_some(Format::VmdkDescriptor);
    let vdi = (le32(head, VDI_SIGNATURE_AT) == Some(VDI_SIGNATURE)).then_some(Format::Vdi);
    [first, descriptor, vdi].into_iter().flatten().collect()
}

/// Returns true for the text descriptor of a VMDK. It begins with `# Disk DescriptorFile`, or, as
/// in QEMU, its first line that is neither blank nor a comment gives the version.
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

/// Returns the name of a disk or archive whose signature occurs in the head of an image, in
/// addition to the signature of its own format `container`.
fn foreign_signature(head: &[u8], container: Format) -> Option<&'static str> {
    let own = head.get(..marks_end(head, container)).unwrap_or(head);
    let has = |at: usize, mark: &[u8]| own.get(at..).is_some_and(|rest| rest.starts_with(mark));
    // A boot sector (UEFI 5.2.1); a GPT header with its revision (5.3.2), for sectors of 512 and
    // 4096 bytes.
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

/// Returns the end of the part of the head in which guest data cannot legitimately look like a
/// disk signature.
///
/// * qcow2: the cluster of the header. With small clusters, the next ones may hold guest data: the
///   4 KiB clusters of a converted ISO image can be stored at their original offsets. The header
///   cluster contains only numbers and names, and 0x55 0xaa is invalid UTF-8.
/// * VMDK: the metadata is 64 KiB long and begins with a header, which is padded with zeros, and a
///   text. Everything after it is compressed, or in grains at multiples of 64 KiB.
/// * VHDX: the first 64 KiB contain only the file identifier. The creator's text in it ends long
///   before byte 510.
/// * VDI, VHD: the header is followed by zeros up to byte 512, and by a map there. Blocks of 1 and
///   2 MiB begin at odd multiples of 512. For byte 32768 to be the guest's own volume descriptor,
///   an ISO image would have to begin inside the guest's disk at an offset that is not a multiple
///   of its sector size.
/// * The other formats are refused in any case.
fn marks_end(head: &[u8], container: Format) -> usize {
    match (container, be32(head, 20)) {
        (Format::Qcow2, Some(cluster_bits @ 9..=21)) => 1 << cluster_bits,
        _ => usize::MAX,
    }
}

/// Returns true for a volume descriptor of any type: type, identifier, version (ECMA-119, 8.1).
fn is_iso(head: &[u8]) -> bool {
    let Some(descriptor) = head.get(ISO_DESCRIPTOR..) else {
        return false;
    };
    matches!(descriptor, [0..=3 | 255, b'C', b'D', b'0', b'0', b'1', 1, ..])
}

/// Returns true for a tar header with a correct checksum (POSIX.1 `pax`, "ustar Interchange
/// Format"; GNU writes spaces as the version).
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
    let counted =
        |(at, byte): (usize, &u8)| u32::from(if CHECKSUM.contains(&at) { b' ' } else { *byte });
    is_ustar && stated == Some(header.iter().enumerate().map(counted).sum())
}

#[cfg(test)]
mod tests;
