//! Sound images, one of each kind.

use std::sync::LazyLock;

use testkit::disk;
use testkit::images::qcow2::{Guest, Qcow2};
use testkit::images::vdi::{Block, Vdi};
use testkit::images::vhd::{self, Dynamic, Footer, Table};
use testkit::images::vhdx::{self, Vhdx};
use testkit::images::vmdk::Tables;

use crate::common::{fast_folder, qemu_img};
use crate::qemu::ask::{Opened, qemu};
use crate::samples;

/// A sound image.
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    /// The name of the format in qemu-img.
    pub(crate) format: &'static str,
    pub(crate) image: Vec<u8>,
}

impl Sample {
    /// Returns the disk that qemu-img reads from the image.
    pub(crate) fn disk(&self) -> Vec<u8> {
        match qemu(&self.image, self.format) {
            Opened::Disk(disk) => disk,
            other => panic!("{}: {other:?}", self.name),
        }
    }
}

/// All samples, which are built once.
pub(crate) static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
    let sample = |name, format, image| Sample { name, format, image };
    vec![
        sample("qcow2", "qcow2", qcow2().build().image),
        sample("qcow2, extended L2", "qcow2", extended().build().image),
        sample("qcow2, snapshots", "qcow2", snapshots().build().image),
        sample("qcow2, bitmap", "qcow2", bitmap()),
        sample("vdi", "vdi", vdi()),
        sample("vmdk", "vmdk", vmdk(Tables::First, false)),
        sample("vmdk, stream", "vmdk", vmdk(Tables::Footer, true)),
        sample("vpc, dynamic", "vpc", vpc()),
        sample(
            "vpc, fixed",
            "vpc",
            vhd::fixed(&disk::content(4, 100 << 10), &Footer::fixed(100 << 10)),
        ),
        sample("vhdx", "vhdx", vhdx()),
    ]
});

/// An image with plain, zero and compressed clusters, alone and shared, in two tables.
pub(crate) fn qcow2() -> Qcow2 {
    let mut guest = vec![
        Guest::Data(1),
        Guest::Data(2),
        Guest::Data(1),
        Guest::ZeroAllocated(3),
        Guest::Compressed(4),
        Guest::Compressed(5),
        Guest::Compressed(4),
    ];
    guest.resize(70, Guest::Hole);
    guest.extend([Guest::Data(6), Guest::Data(1)]);
    Qcow2::new(9, guest)
}

pub(crate) fn extended() -> Qcow2 {
    let guest = vec![
        Guest::Data(1),
        Guest::Part(2, 0x00ff_0f01),
        Guest::ZeroAllocated(3),
        Guest::Compressed(4),
        Guest::Part(1, 0xf),
    ];
    Qcow2 { extended_l2: true, ..Qcow2::new(14, guest) }
}

pub(crate) fn snapshots() -> Qcow2 {
    let qcow2 = qcow2();
    let mut other = qcow2.guest.clone();
    other[1] = Guest::Data(7);
    Qcow2 { snapshots: vec![qcow2.guest.clone(), other], ..qcow2 }
}

/// Returns an image with bitmaps from qemu-img, which also lists the names of all features.
fn bitmap() -> Vec<u8> {
    let folder = fast_folder();
    let path = folder.path().join("image");
    let path = path.to_str().unwrap();
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", "cluster_size=4k", path, "300k"]);
    qemu_img(&["bitmap", "--add", "-g", "64k", path, "one"]);
    qemu_img(&["bitmap", "--add", "--disable", path, "another"]);
    std::fs::read(path).unwrap()
}

fn vdi() -> Vec<u8> {
    let map = vec![Block::At(1), Block::Zero, Block::At(0), Block::Free];
    Vdi { virtual_size: (4 << 20) - 1024, map, ..samples::shuffled_vdi() }.build()
}

fn vmdk(tables: Tables, compressed: bool) -> Vec<u8> {
    samples::small_vmdk(tables, compressed).build()
}

fn vpc() -> Vec<u8> {
    Dynamic { table: Table::First, ..samples::shuffled_vhd() }.bytes()
}

fn vhdx() -> Vec<u8> {
    Vhdx {
        blocks: vec![
            (2, vhdx::Block::Present(disk::content(7, 3000))),
            (0, vhdx::Block::Present(disk::content(8, 1 << 20))),
        ],
        ..Vhdx::new((3 << 20) + 512, 1 << 20)
    }
    .bytes()
}
