//! The images: one of each layout, by qemu-img and by hand.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use testkit::disk;
use testkit::images::{Oracle, Subformat};

use crate::common::fast_folder;
use crate::metadata;

/// Two blocks of every format, the last of them not whole.
const DISK_BYTES: usize = (2 << 20) + (64 << 10) + 512;

/// An image, what qemu-img makes of it, and where its headers and tables are.
pub(crate) struct Sample {
    pub(crate) name: String,
    /// Its format's name for qemu-img.
    pub(crate) format: &'static str,
    pub(crate) image: Bytes,
    pub(crate) disk: Bytes,
    pub(crate) metadata: Vec<Range<usize>>,
}

impl Sample {
    /// An image of `format`; the disk is what qemu-img makes of it.
    fn new(name: impl Into<String>, format: &'static str, image: Vec<u8>) -> Self {
        let folder = fast_folder();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("image"), &image).unwrap();
        Oracle::ask(format, &path("image"), &path("raw"));
        Self {
            name: name.into(),
            format,
            metadata: metadata::find(format, &image),
            image: image.into(),
            disk: std::fs::read(path("raw")).unwrap().into(),
        }
    }

    fn by_qemu(subformat: Subformat) -> Self {
        let folder = fast_folder();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("disk"), islands()).unwrap();
        subformat.write(&path("disk"), &path("image"));
        let image = std::fs::read(path("image")).unwrap();
        Self::new(subformat.to_string(), subformat.format, image)
    }
}

/// A few KiB of data: at the beginning, in the middle, around a boundary of every kind of block, and at the end.
fn islands() -> Vec<u8> {
    let mut bytes = vec![0; DISK_BYTES];
    for (seed, at) in (1..).zip([0, (1 << 20) - 2048, 2 << 20, DISK_BYTES - 1024]) {
        let content = disk::content(seed, 4096);
        let end = DISK_BYTES.min(at + content.len());
        bytes[at..end].copy_from_slice(&content[..end - at]);
    }
    bytes
}

/// All samples; made once.
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
        // Only the tables of fixed VHDX images differ from those of dynamic ones.
        let tables = |sample: &&mut Sample| sample.name.contains("vhdx subformat=fixed");
        for sample in samples.iter_mut().filter(tables) {
            let last = sample.metadata.len() - 2;
            sample.metadata.drain(..last);
        }
        samples.extend(vdi_by_hand());
        samples.extend(vmdk_by_hand());
        samples
    })
}

/// Layouts that qemu-img does not write.
fn vdi_by_hand() -> Vec<Sample> {
    use testkit::images::vdi::{Block, Vdi};

    let block = |seed| disk::content(seed, 3000);
    let shuffled = Vdi {
        map_offset: 512,
        data_offset: 1024,
        ..Vdi::new(
            (3 << 20) - 1024,
            vec![Block::At(1), Block::Zero, Block::At(1), Block::At(0)],
            vec![block(1), block(2)],
        )
    };
    let backwards = Vdi {
        map_offset: 3 << 20,
        data_offset: 1 << 20,
        map: vec![Block::At(1), Block::Free, Block::At(0), Block::Free],
        ..shuffled.clone()
    };
    let by_hand = |name, vdi: &Vdi| {
        let mut sample = Sample::new(name, "vdi", vdi.build());
        // Its header is like that of the others.
        sample.metadata.remove(0);
        sample
    };
    vec![
        by_hand("vdi, shuffled", &shuffled),
        by_hand("vdi, map last", &backwards),
        Sample::new("vpc, shuffled, table last", "vpc", shuffled_vhd()),
    ]
}

/// As VirtualBox and VMware write them, and in orders that nobody writes: small grains and tables, the last grain cut.
fn vmdk_by_hand() -> Vec<Sample> {
    use testkit::images::vmdk::{Grain, Tables, Vmdk};

    let mut grains = vec![Grain::Hole; 20];
    for (number, byte) in [(0, 3), (5, 60), (6, 90), (19, 9)] {
        grains[number] = Grain::Data(byte);
    }
    grains[7] = Grain::Zeroed;
    let layouts = [
        ("tables first", Tables::First, false),
        ("tables first, compressed", Tables::First, true),
        ("tables last", Tables::Last, false),
        ("tables last, compressed", Tables::Last, true),
        ("footer", Tables::Footer, true),
    ];
    let by_hand = |(name, tables, compressed)| {
        let vmdk = Vmdk {
            cut_sectors: 3,
            order: vec![2, 2, 2, 2, 2, 1],
            ..Vmdk::small(tables, compressed, grains.clone())
        };
        let mut sample = Sample::new(format!("vmdk, {name}"), "vmdk", vmdk.build());
        assert!(
            sample.disk == vmdk.disk(),
            "{name}: qemu-img reads another disk than was written"
        );
        // Its descriptor is like that of the others.
        sample.metadata.remove(2);
        sample
    };
    layouts.map(by_hand).into()
}

/// Blocks of 64 KiB in another order, and entries of the table for which there are no sectors.
fn shuffled_vhd() -> Vec<u8> {
    use testkit::images::vhd::{Dynamic, Table};

    Dynamic {
        blocks: [2, 0, 4].map(|index| (index, disk::content(7, 3000))).into(),
        table: Table::Last,
        spare_entries: 2,
        ..Dynamic::new((300 << 10) - 512, 64 << 10)
    }
    .bytes()
}
