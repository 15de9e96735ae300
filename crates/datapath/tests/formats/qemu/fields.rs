//! The fields of headers, and the values near which something changes.

use diskimage::bytes_at::{be32, be64, le32, le64};
use testkit::images::qcow2::HEADER_FIELDS;
use testkit::images::{vhd, vhdx};

use crate::qemu::samples::Sample;

/// A field of a header or table that is read when an image is opened.
pub(crate) struct Field {
    pub(crate) name: String,
    at: usize,
    width: usize,
    is_big_endian: bool,
    /// The checksum that covers the field.
    sealed: Sealed,
}

/// Where the checksum of a structure is, if it has one.
#[derive(Clone, Copy)]
enum Sealed {
    Not,
    /// A VHD footer or header: its offset, its length, and the offset of its checksum.
    Vhd(usize, usize, usize),
    /// A VHDX header or region table: its offset and its length.
    Vhdx(usize, usize),
}

impl Field {
    /// Returns the image with `value` in this field.
    pub(crate) fn put(&self, image: &[u8], value: u64) -> Vec<u8> {
        let mut image = image.to_vec();
        let field = &mut image[self.at..self.at + self.width];
        field.copy_from_slice(&value.to_le_bytes()[..self.width]);
        if self.is_big_endian {
            field.reverse();
        }
        match self.sealed {
            Sealed::Not => {}
            Sealed::Vhd(at, length, sum) => vhd::seal(&mut image[at..at + length], sum),
            Sealed::Vhdx(at, length) => vhdx::seal(&mut image[at..at + length]),
        }
        image
    }

    /// Returns true for an item of VHDX metadata.
    pub(crate) fn is_metadata_item(&self) -> bool {
        self.name.starts_with("metadata") && self.name.ends_with("item")
    }

    fn now(&self, image: &[u8]) -> u64 {
        let mut bytes = image[self.at..self.at + self.width].to_vec();
        if self.is_big_endian {
            bytes.reverse();
        }
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Returns values to try: around zero, around powers of two, at both ends, and around the
    /// current value.
    pub(crate) fn values(&self, image: &[u8]) -> Vec<u64> {
        let most = u64::MAX >> (64 - 8 * self.width);
        let now = self.now(image);
        let mut values: Vec<u64> =
            (0..=9).chain([15, 17, 23, 24, 25, 71, 72, 103, 104, 105, 112]).collect();
        for bits in [
            4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 18, 20, 21, 22, 24, 25, 26, 29, 30, 31, 32, 33,
            40, 47, 48, 54, 55, 56, 62, 63,
        ] {
            values.extend([(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        }
        let [before, after] = [now.wrapping_sub(1), now.wrapping_add(1)];
        let near =
            [now / 2, before, after, now.wrapping_add(8), now.wrapping_mul(2), now ^ 1 << 31];
        values.extend(near.map(|value| value & most));
        for distance in [1, 2, 8, 511, 512, 65_536] {
            let end = |most: u64| most.saturating_sub(distance - 1);
            values.extend([end(most), end(most >> 1)]);
        }
        values.retain(|value| *value <= most && *value != now);
        values.sort_unstable();
        values.dedup();
        values
    }
}

/// Name, offset and width of the fields of one structure.
type Layout = [(&'static str, usize, usize)];

/// The first extension, which follows the fields of a qcow2 header.
const EXTENSION: &Layout =
    &[("type of the first extension", 104, 4), ("length of the first extension", 108, 4)];

/// qcow2.rst, "Snapshots".
const SNAPSHOT: &Layout = &[
    ("L1 table offset", 0, 8),
    ("L1 size", 8, 4),
    ("length of the ID", 12, 2),
    ("length of the name", 14, 2),
    ("size of the VM state", 32, 4),
    ("length of the extra data", 36, 4),
    ("size of the disk", 48, 8),
];

/// qcow2.rst, "Bitmaps extension".
const BITMAPS: &Layout = &[
    ("type of the extension", 0, 4),
    ("length of the extension", 4, 4),
    ("bitmaps", 8, 4),
    ("reserved", 12, 4),
    ("size of the directory", 16, 8),
    ("offset of the directory", 24, 8),
    ("type of the next extension", 32, 4),
    ("length of the next extension", 36, 4),
];

/// qcow2.rst, "Bitmap directory".
const BITMAP: &Layout = &[
    ("table offset", 0, 8),
    ("table size", 8, 4),
    ("flags", 12, 4),
    ("type", 16, 1),
    ("granularity", 17, 1),
    ("length of the name", 18, 2),
    ("length of the extra data", 20, 4),
];

/// `VDICore.h`.
const VDI: &Layout = &[
    ("signature", 0x40, 4),
    ("version", 0x44, 4),
    ("header size", 0x48, 4),
    ("type", 0x4c, 4),
    ("flags", 0x50, 4),
    ("offset of the map", 0x154, 4),
    ("offset of the data", 0x158, 4),
    ("cylinders", 0x15c, 4),
    ("sector size", 0x168, 4),
    ("disk size", 0x170, 8),
    ("block size", 0x178, 4),
    ("bytes before blocks", 0x17c, 4),
    ("blocks", 0x180, 4),
    ("allocated blocks", 0x184, 4),
    ("UUID", 0x188, 8),
    ("UUID of the last snapshot", 0x198, 8),
    ("UUID of the link", 0x1a8, 8),
    ("UUID of the parent", 0x1b8, 8),
];

/// "Virtual Disk Format 5.0", "Hosted Sparse Extent Header".
const VMDK: &Layout = &[
    ("magic", 0, 4),
    ("version", 4, 4),
    ("flags", 8, 4),
    ("capacity", 12, 8),
    ("grain", 20, 8),
    ("descriptor offset", 28, 8),
    ("descriptor size", 36, 8),
    ("entries of a table", 44, 4),
    ("redundant directory", 48, 8),
    ("directory", 56, 8),
    ("overhead", 64, 8),
    ("unclean", 72, 1),
    ("end of line", 73, 4),
    ("compression", 77, 2),
];

/// "Hard Disk Footer Format".
const VHD_FOOTER: &Layout = &[
    ("cookie", 0, 8),
    ("features", 8, 4),
    ("version", 12, 4),
    ("data offset", 16, 8),
    ("time", 24, 4),
    ("creator", 28, 4),
    ("original size", 40, 8),
    ("current size", 48, 8),
    ("cylinders", 56, 2),
    ("heads", 58, 1),
    ("sectors", 59, 1),
    ("type", 60, 4),
    ("saved state", 84, 1),
];

/// "Dynamic Disk Header Format".
const VHD_HEADER: &Layout = &[
    ("cookie", 0, 8),
    ("data offset", 8, 8),
    ("table offset", 16, 8),
    ("version", 24, 4),
    ("table entries", 28, 4),
    ("block size", 32, 4),
];

/// \[MS-VHDX\] 2.2.2.
const VHDX_HEADER: &Layout = &[
    ("signature", 0, 4),
    ("sequence number", 8, 8),
    ("log GUID", 48, 8),
    ("log version", 64, 2),
    ("version", 66, 2),
    ("log length", 68, 4),
    ("log offset", 72, 8),
];

/// \[MS-VHDX\] 2.2.3: the header, two entries.
const VHDX_REGIONS: &Layout = &[
    ("signature", 0, 4),
    ("entries", 8, 4),
    ("first GUID", 16, 8),
    ("first offset", 32, 8),
    ("first length", 40, 4),
    ("first required", 44, 4),
    ("second GUID", 48, 8),
    ("second offset", 64, 8),
    ("second length", 72, 4),
    ("second required", 76, 4),
];

/// \[MS-VHDX\] 2.6.1: the header, the first entries.
const VHDX_METADATA: &Layout = &[
    ("signature", 0, 8),
    ("entries", 10, 2),
    ("first GUID", 32, 8),
    ("first offset", 48, 4),
    ("first length", 52, 4),
    ("first flags", 56, 4),
    ("second GUID", 64, 8),
    ("second offset", 80, 4),
    ("second length", 84, 4),
    ("second flags", 88, 4),
];

/// Returns the fields of a sample.
pub(crate) fn fields(sample: &Sample) -> Vec<Field> {
    let image = &sample.image;
    let index = |number: Option<u64>| usize::try_from(number.unwrap()).unwrap();
    let is_big_endian = ["qcow2", "vpc"].contains(&sample.format);
    let mut fields = Fields { is_big_endian, list: Vec::new() };
    match sample.format {
        "qcow2" => {
            for layout in [&HEADER_FIELDS[..], EXTENSION] {
                fields.add("header", layout, 0, Sealed::Not);
            }
            let snapshots = be32(image, 60).unwrap();
            if snapshots > 0 {
                fields.add("snapshot", SNAPSHOT, index(be64(image, 64)), Sealed::Not);
            }
            if let Some(at) =
                image[..4096].windows(4).position(|kind| kind == [0x23, 0x85, 0x28, 0x75])
            {
                fields.add("bitmaps", BITMAPS, at, Sealed::Not);
                fields.add("bitmap", BITMAP, index(be64(image, at + 24)), Sealed::Not);
            }
        }
        "vdi" => fields.add("header", VDI, 0, Sealed::Not),
        "vmdk" => {
            fields.add("header", VMDK, 0, Sealed::Not);
            if le64(image, 56) == Some(u64::MAX) {
                fields.add("footer", VMDK, image.len() - 1024, Sealed::Not);
            }
        }
        "vpc" => {
            let footer = if image.starts_with(b"conectix") { 0 } else { image.len() - 512 };
            fields.add("footer", VHD_FOOTER, footer, Sealed::Vhd(footer, 512, 64));
            if footer == 0 {
                let header = index(be64(image, 16));
                fields.add("header", VHD_HEADER, header, Sealed::Vhd(header, 1024, 36));
            }
        }
        _ => {
            for at in [64 << 10, 128 << 10] {
                fields.add("header", VHDX_HEADER, at, Sealed::Vhdx(at, 4096));
            }
            for at in [192 << 10, 256 << 10] {
                fields.add("region table", VHDX_REGIONS, at, Sealed::Vhdx(at, 65_536));
            }
            vhdx_metadata(image, &mut fields);
        }
    }
    fields.list
}

fn vhdx_metadata(image: &[u8], fields: &mut Fields) {
    let entries = [192 * 1024 + 16, 192 * 1024 + 48];
    let regions = entries.map(|at| usize::try_from(le64(image, at + 16).unwrap()).unwrap());
    let metadata = *regions.iter().find(|at| image[**at..].starts_with(b"metadata")).unwrap();
    fields.add("metadata", VHDX_METADATA, metadata, Sealed::Not);
    let count = usize::from(image[metadata + 10]);
    for entry in (0..count).map(|index| metadata + 32 + index * 32) {
        let number = |at| usize::try_from(le32(image, at).unwrap()).unwrap();
        let (offset, length) = (number(entry + 16), number(entry + 20));
        for (at, width) in
            [(0, 4), (4, 4), (0, 8)].into_iter().filter(|(at, width)| at + width <= length)
        {
            let layout = [("item", at, width)];
            fields.add("metadata", &layout, metadata + offset, Sealed::Not);
        }
    }
}

struct Fields {
    is_big_endian: bool,
    list: Vec<Field>,
}

impl Fields {
    fn add(&mut self, what: &str, layout: &Layout, from: usize, sealed: Sealed) {
        for (name, at, width) in layout {
            self.list.push(Field {
                name: format!("{what} at {from:#x}: {name}"),
                at: from + at,
                width: *width,
                is_big_endian: self.is_big_endian,
                sealed,
            });
        }
    }
}
