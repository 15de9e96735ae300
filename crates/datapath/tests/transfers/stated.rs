//! Disks of which their source says that they are raw: no byte of the guest decides how they are
//! read.

use datapath::options::WriteOptions;
use datapath::transfer_image;
use diskimage::Format;
use proptest::prelude::*;
use stream::options::{PayloadKind, ReadOptions, StatedDisk};
use testkit::images::qcow2::{Guest, Qcow2};
use testkit::images::vdi::{Block, Vdi};
use testkit::images::vhdx::Vhdx;
use testkit::images::vmdk::{Grain, Tables, Vmdk};

use crate::common::{Memory, fast_folder, file, noise};

/// Images and the first bytes of other files, as a guest may have written them into its disk.
fn heads() -> Vec<Vec<u8>> {
    let stream = |codec: &[u8]| [codec, &[0; 600]].concat();
    vec![
        Qcow2::new(16, vec![Guest::Data(1), Guest::Hole, Guest::Compressed(2)]).build().image,
        Vmdk::small(Tables::Footer, true, vec![Grain::Data(1), Grain::Hole]).build(),
        Vdi::new(2 << 20, vec![Block::Free, Block::Free], Vec::new()).build(),
        Vhdx::new(4 << 20, 1 << 20).bytes(),
        zstd::encode_all(&noise(1 << 20, 1)[..], 1).unwrap(),
        stream(b"\x1f\x8b\x08\0\0\0\0\0\0\x03"),
        stream(b"\xfd7zXZ\0\0\x04"),
        stream(b"BZh91AY&SY"),
        stream(b"PK\x03\x04"),
        stream(b"7z\xbc\xaf\x27\x1c"),
        stream(b"\x7fELF"),
        stream(b"KDMV"),
        b"U".repeat(20_480),
        b"<!DOCTYPE html><html></html>\n".repeat(40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_first_bytes_of_a_stated_disk_do_not_matter(
        head in prop::sample::select(heads()),
        cut in any::<prop::sample::Index>(),
        blocks in 1usize..4096,
        is_filled: bool,
        ranged: bool,
        compressed: bool,
    ) {
        let head = &head[..cut.index(head.len() + 1)];
        let mut disk = vec![0; blocks * 512];
        if is_filled {
            disk = noise(disk.len(), 7);
        }
        let length = head.len().min(disk.len());
        disk[..length].copy_from_slice(&head[..length]);
        let (bytes, stated) = match compressed {
            true => (zstd::encode_all(&disk[..], 1).unwrap(), StatedDisk::ZSTD),
            false => (disk.clone(), StatedDisk::PLAIN),
        };
        let size = disk.len() as u64;
        for (stated_bytes, is_right) in [(None, true), (Some(size), true), (Some(size + 512), false)] {
            let stated = Some(StatedDisk { bytes: stated_bytes, ..stated });
            let source = Memory { ranged, stated, ..Memory::new(bytes.clone()) };
            let folder = fast_folder();
            let target = file(&folder.path().join("disk"));
            let (content, reading) = (PayloadKind::default(), ReadOptions::default());
            let transferred = transfer_image(&source, content, &target, &reading, &WriteOptions::default());
            match transferred {
                Ok(report) => {
                    prop_assert!(is_right && report.facts.format == Format::Raw);
                    prop_assert!(std::fs::read(target.path).unwrap() == disk);
                }
                Err(error) => {
                    prop_assert!(!is_right, "{}", error);
                    prop_assert!(error.to_string().contains(&(size + 512).to_string()), "{}", error);
                    prop_assert!(!target.path.exists());
                }
            }
        }
    }
}
