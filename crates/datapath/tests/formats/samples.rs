//! The sample images: one of each layout, written by qemu-img or by hand.

use std::ops::Range;
use std::sync::OnceLock;

use testkit::disk;
use testkit::images::vdi::{Block, Vdi};
use testkit::images::vhd::{Dynamic, Table};
use testkit::images::vmdk::{ExportLayout, Grain, Tables, Vmdk};
use testkit::images::{Oracle, Subformat};

use crate::common::fast_folder;
use crate::common::objects::Object;
use crate::metadata;

/// Size of the last block of a disk, which is always a partial one.
const LAST_BLOCK_BYTES: usize = (40 << 10) + 512;

/// An image, the disk that qemu-img reads from it, and the ranges of its headers and tables.
pub(crate) struct Sample {
    pub(crate) object: Object,
    /// The name of the format in qemu-img.
    pub(crate) format: &'static str,
    pub(crate) metadata: Vec<Range<usize>>,
}

impl Sample {
    /// Makes a sample of an image of `format`; its disk is what qemu-img reads from it.
    fn new(name: impl Into<String>, format: &'static str, image: Vec<u8>) -> Self {
        let folder = fast_folder();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("image"), &image).unwrap();
        Oracle::ask(format, &path("image"), &path("raw"));
        let metadata = metadata::find(format, &image);
        let disk = std::fs::read(path("raw")).unwrap().into();
        let object = Object { name: name.into(), bytes: image.into(), disk };
        Self { object, format, metadata }
    }

    fn by_qemu(subformat: Subformat) -> Self {
        let folder = fast_folder();
        let path = |name: &str| folder.path().join(name);
        // As few whole blocks as possible, to save time: some of 64 KiB, or one of 2 MiB or 1 MiB.
        let whole = match subformat.format {
            "vmdk" => 192 << 10,
            "vpc" => 2 << 20,
            _ => 1 << 20,
        };
        std::fs::write(path("disk"), islands(whole)).unwrap();
        subformat.write(&path("disk"), &path("image"));
        let image = std::fs::read(path("image")).unwrap();
        Self::new(subformat.to_string(), subformat.format, image)
    }
}

/// Returns `whole` bytes of whole blocks and then a partial block, with a few KiB of data: at the
/// beginning, in the middle, around the beginning of the last block, and at the end.
fn islands(whole: usize) -> Vec<u8> {
    let mut bytes = vec![0; whole + LAST_BLOCK_BYTES];
    let end = bytes.len();
    for (seed, at) in (1..).zip([0, whole / 2, whole - 2048, end - 1024]) {
        let content = disk::content(seed, 4096);
        let length = content.len().min(end - at);
        bytes[at..at + length].copy_from_slice(&content[..length]);
    }
    bytes
}

/// Returns all samples, which are built once.
pub(crate) fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let subformats = [
            Subformat::new("vmdk", "subformat=monolithicSparse"),
            Subformat::new("vmdk", "subformat=streamOptimized"),
            Subformat::new("vdi", ""),
            Subformat::new("vdi", "static=on"),
            Subformat::new("vpc", "subformat=dynamic"),
            Subformat::new("vpc", "subformat=fixed,force_size=on"),
            Subformat::new("vhdx", "subformat=dynamic,block_size=1M"),
            Subformat::new("vhdx", "subformat=fixed"),
        ];
        let mut samples: Vec<Sample> = subformats.map(Sample::by_qemu).into();
        leave_out(&mut samples);
        samples.extend(vdi_by_hand());
        samples.extend(vmdk_by_hand());
        samples
    })
}

/// Removes metadata that another sample of the format has as well: to damage it twice would take
/// time and tell nothing new.
fn leave_out(samples: &mut [Sample]) {
    for sample in samples {
        match sample.object.name.as_str() {
            // Keep only the block allocation table, which is the last region.
            "vhdx subformat=fixed" => drop(sample.metadata.drain(..sample.metadata.len() - 2)),
            // Remove the text of the descriptor.
            "vmdk subformat=streamOptimized" => drop(sample.metadata.remove(2)),
            // Keep only signature and type of the header.
            "vdi static=on" => sample.metadata[0] = 0x40..0x50,
            _ => {}
        }
    }
}

/// Returns a VDI whose blocks are in another order, and two of them the same.
pub(crate) fn shuffled_vdi() -> Vdi {
    let block = |seed| disk::content(seed, 3000);
    let map = vec![Block::At(1), Block::Zero, Block::At(1), Block::At(0)];
    Vdi {
        map_offset: 512,
        data_offset: 1024,
        ..Vdi::new((3 << 20) - 1024, map, vec![block(1), block(2)])
    }
}

/// Returns VDI and VHD images with layouts that qemu-img does not write.
fn vdi_by_hand() -> Vec<Sample> {
    let backwards = Vdi {
        map_offset: 3 << 20,
        data_offset: 1 << 20,
        map: vec![Block::At(1), Block::Free, Block::At(0), Block::Free],
        ..shuffled_vdi()
    };
    let by_hand = |name, vdi: &Vdi| {
        let mut sample = Sample::new(name, "vdi", vdi.build());
        // The other samples have a similar header.
        sample.metadata.remove(0);
        sample
    };
    vec![
        by_hand("vdi, shuffled", &shuffled_vdi()),
        by_hand("vdi, map last", &backwards),
        Sample::new("vpc, shuffled, table last", "vpc", shuffled_vhd().bytes()),
    ]
}

/// Returns a VMDK whose grains and tables are small, and whose last grain is partial.
pub(crate) fn small_vmdk(tables: Tables, compressed: bool) -> Vmdk {
    let mut grains = vec![Grain::Hole; 20];
    for (number, byte) in [(0, 3), (5, 60), (6, 90), (19, 9)] {
        grains[number] = Grain::Data(byte);
    }
    grains[7] = Grain::Zeroed;
    Vmdk { cut_sectors: 3, ..Vmdk::small(tables, compressed, grains) }
}

/// Returns VMDK images as VirtualBox and VMware write them, and with their tables in other orders.
fn vmdk_by_hand() -> Vec<Sample> {
    let layouts = [
        ("tables first", Tables::First, false),
        ("tables first, compressed", Tables::First, true),
        ("tables last", Tables::Last, false),
        ("tables last, compressed", Tables::Last, true),
        ("footer", Tables::Footer, true),
        ("exported by Xen Orchestra", Tables::Exported(ExportLayout::XEN_ORCHESTRA), true),
    ];
    let by_hand = |(name, tables, compressed)| {
        let vmdk = Vmdk { order: vec![2, 2, 2, 2, 2, 1], ..small_vmdk(tables, compressed) };
        let mut sample = Sample::new(format!("vmdk, {name}"), "vmdk", vmdk.build());
        let disk = &sample.object.disk;
        assert!(*disk == vmdk.disk(), "{name}: qemu-img reads another disk than was written");
        // The other samples have a similar descriptor.
        sample.metadata.remove(2);
        sample
    };
    layouts.map(by_hand).into()
}

/// Returns a dynamic VHD with blocks of 64 KiB in another order, and with table entries beyond the
/// end of the disk.
pub(crate) fn shuffled_vhd() -> Dynamic {
    Dynamic {
        blocks: [2, 0, 4].map(|index| (index, disk::content(7, 3000))).into(),
        table: Table::Last,
        spare_entries: 2,
        ..Dynamic::new((300 << 10) - 512, 64 << 10)
    }
}
