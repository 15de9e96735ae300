use super::*;

/// An offset in a head, and the bytes there.
type Part<'a> = (usize, &'a [u8]);

/// Returns a head of zeros that contains these bytes.
fn head(parts: &[Part<'_>]) -> Vec<u8> {
    let mut head = vec![0; DETECT_BYTES];
    for (at, bytes) in parts {
        head[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    head
}

const VDI: Part<'_> = (0x40, b"\x7f\x10\xda\xbe");
const ISO: Part<'_> = (ISO_DESCRIPTOR, b"\x01CD001\x01");
const GPT: Part<'_> = (512, b"EFI PART\0\0\x01\0");
const GPT_4K: Part<'_> = (4096, b"EFI PART\0\0\x01\0");
const MBR: Part<'_> = (510, b"\x55\xaa");

/// Returns a tar whose first file is called `name`, which may be the signature of an image.
fn tar(name: &[u8]) -> Vec<u8> {
    let mut tar = head(&[(0, name), (257, b"ustar\x0000"), (148, b"        ")]);
    let sum: u32 = tar[..512].iter().map(|byte| u32::from(*byte)).sum();
    tar[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    tar
}

#[test]
fn signatures_are_recognised() {
    for (bytes, format) in [
        (&b"QFI\xfb\0\0\0\x03"[..], Format::Qcow2),
        (b"QFI\xfb\0\0\0\x02", Format::Qcow2),
        (b"QFI\xfb\0\0\0\x07", Format::Qcow2),
        (b"QFI\xfb\0\0\0\x01", Format::Qcow1),
        (b"QED\0", Format::Qed),
        (b"KDMV", Format::Vmdk),
        (b"COWD", Format::VmdkCowd),
        (b"\xbe\xba\xfe\xca\0\0\0\0\x01\0\0\0\x02\0\0\0", Format::VmdkSeSparse),
        (b"# Disk DescriptorFile\n", Format::VmdkDescriptor),
        (b"\n # a comment\r\n  version=1\r\nCID=1\n", Format::VmdkDescriptor),
        (b"version=4\n", Format::Raw),
        (b"conectix", Format::Vhd),
        (b"vhdxfile", Format::Vhdx),
        (b"WithoutFreeSpace", Format::Parallels),
        (b"WithouFreSpacExt", Format::Parallels),
        (b"Bochs Virtual HD Image\0", Format::Bochs),
        (b"#!/bin/sh\n#V2.0 Format\nmodprobe", Format::Cloop),
        (b"#!/bin/sh\necho", Format::Raw),
        (b"QFI", Format::Raw),
        (b"", Format::Raw),
        (b"\xeb\x63\x90", Format::Raw),
    ] {
        assert_eq!(Format::detect(bytes), Ok(format), "{}", bytes.escape_ascii());
    }
    assert_eq!(Format::detect(&head(&[VDI])), Ok(Format::Vdi));
}

#[test]
fn a_disk_with_signs_of_several_kinds_is_raw() {
    assert_eq!(Format::detect(&head(&[ISO, GPT, GPT_4K, MBR])), Ok(Format::Raw));
    assert_eq!(Format::detect(&tar(b"disk.vmdk")), Ok(Format::Raw));
}

#[test]
fn a_container_that_also_looks_like_a_disk_is_refused_with_both_names() {
    let qcow2: Part<'_> = (0, b"QFI\xfb\0\0\0\x03");
    let cluster: Part<'_> = (20, &[0, 0, 0, 16]);
    let containers: [(&str, &[Part<'_>]); 5] = [
        ("qcow2", &[qcow2, cluster]),
        ("vmdk", &[(0, b"KDMV")]),
        ("vdi", &[VDI]),
        ("vpc (VHD)", &[(0, b"conectix")]),
        ("vhdx", &[(0, b"vhdxfile")]),
    ];
    for (first, container) in containers {
        let marks = [
            (ISO, "ISO 9660"),
            ((ISO.0, b"\xffCD001\x01"), "ISO 9660"),
            (GPT, "GPT"),
            (GPT_4K, "GPT"),
            (MBR, "MBR"),
        ];
        for (mark, second) in marks {
            let image = head(&[container, &[mark]].concat());
            assert_eq!(Format::detect(&image), Err(Error::Ambiguous { first, second }));
        }
        assert!(Format::detect(&head(container)).is_ok());
    }
    let ambiguous = Format::detect(&tar(b"QFI\xfb\0\0\0\x03"));
    let (first, second) = ("qcow2", "tar");
    assert_eq!(ambiguous, Err(Error::Ambiguous { first, second }));
}

#[test]
fn two_containers_are_refused_unless_one_that_is_present_is_requested() {
    let image = head(&[(0, b"QFI\xfb\0\0\0\x03"), VDI]);
    let (first, second) = ("qcow2", "vdi");
    assert_eq!(Format::detect(&image), Err(Error::Ambiguous { first, second }));
    for wanted in [Format::Vdi, Format::Qcow2, Format::Raw] {
        assert_eq!(Format::resolve_wanted(&image, Some(wanted)), Ok(wanted));
    }
    let vdi = head(&[VDI, MBR]);
    assert_eq!(Format::resolve_wanted(&vdi, Some(Format::Vdi)), Ok(Format::Vdi));
    let (wanted, found) = (Format::Vhdx, Format::Vdi);
    let refused = Err(Error::NotThatFormat { wanted, found });
    assert_eq!(Format::resolve_wanted(&vdi, Some(wanted)), refused);
    assert_eq!(Format::resolve_wanted(&vdi, None), Format::detect(&vdi));
    assert!(Format::resolve_wanted(&head(&[MBR]), Some(Format::Vdi)).is_err());
}

#[test]
fn guest_bytes_behind_the_first_cluster_of_a_qcow2_are_ignored() {
    for (cluster_bits, marks) in [(9, &[ISO, GPT, GPT_4K][..]), (12, &[ISO, GPT_4K]), (15, &[ISO])]
    {
        let header: [Part<'_>; 2] = [(0, b"QFI\xfb\0\0\0\x03"), (20, &[0, 0, 0, cluster_bits])];
        let image = head(&[&header, marks].concat());
        assert_eq!(Format::detect(&image), Ok(Format::Qcow2), "{cluster_bits}");
    }
}

#[test]
fn incomplete_signs_of_a_disk_are_ignored() {
    for mark in [
        (ISO_DESCRIPTOR, &b"\x04CD001\x01"[..]),
        (ISO_DESCRIPTOR, b"\x01CD001\x02"),
        (512, b"EFI PART\0\0\x02\0"),
        (257, b"ustar\x0000"),
    ] {
        assert_eq!(Format::detect(&head(&[VDI, mark])), Ok(Format::Vdi));
    }
}

#[test]
fn a_truncated_head_has_no_format_that_the_whole_lacks() {
    let whole = head(&[VDI]);
    for length in 0..whole.len() {
        let format = Format::detect(&whole[..length]);
        let expected = if length < 0x44 { Format::Raw } else { Format::Vdi };
        assert_eq!(format, Ok(expected));
    }
}
