//! Every single-byte damage to what a small VMDK image consists of, data aside: the disk that qemu-img makes of it, or a refusal.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Memory, fast_folder, file};
use datapath::transfer;
use datapath::transfer::Options;
use testkit::images::vmdk::{Grain, Tables, Vmdk};
use testkit::tools;

/// What an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Larger disks are refused here, so that no damage makes a test write for long.
const AVAILABLE: u64 = 16 << 20;

fn sample(tables: Tables, compressed: bool) -> Vmdk {
    let mut grains = vec![Grain::Hole; 20];
    grains[0] = Grain::Data(3);
    grains[5] = Grain::Data(60);
    grains[6] = Grain::Zeroed;
    grains[19] = Grain::Data(9);
    Vmdk {
        cut_sectors: 3,
        ..Vmdk::small(tables, compressed, grains)
    }
}

/// What the importer makes of `image`, both ways; `None` where it is refused.
fn imported(image: &[u8], folder: &Path) -> [Option<Vec<u8>>; 2] {
    [Memory::ranged(image.to_vec()), Memory::new(image.to_vec())].map(|source| {
        let mut target = file(&folder.join("target"));
        target.available = AVAILABLE;
        let started = Instant::now();
        let result = transfer(&source, &target, &Options::default());
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        let written = result.ok().map(|_| std::fs::read(&target.path).unwrap());
        std::fs::remove_file(&target.path).ok();
        written
    })
}

/// Sectors of the image that are not data: the header, and everything that is neither descriptor nor padding nor a grain.
fn places(image: &[u8], compressed: bool) -> Vec<usize> {
    // Without its magic it would be a raw disk.
    let header = 4..79;
    let overhead = usize::try_from(u64::from_le_bytes(image[64..72].try_into().unwrap())).unwrap() * 512;
    // Entries and markers are at the beginnings of their sectors.
    let sectors = (21 * 512..image.len()).step_by(512);
    let tables = sectors.flat_map(move |start| {
        let is_data = start >= overhead && !compressed && image[start] != 0 && image[start + 100] != 0;
        let length = match start {
            _ if is_data => 0,
            _ if image[start..].starts_with(b"KDMV") => 79,
            _ if compressed && start >= overhead => 20,
            _ => 12,
        };
        start..start + length
    });
    header.chain(tables).collect()
}

fn check(tables: Tables, compressed: bool) {
    let vmdk = sample(tables, compressed);
    let image = vmdk.build();
    let folder = fast_folder();
    let path = |name: &str| folder.path().join(name);
    let (mut accepted, mut refused) = (0, 0);
    for place in places(&image, compressed) {
        for change in [0x01, 0x80, 0xff] {
            let mut damaged = image.clone();
            damaged[place] ^= change;
            let disks = imported(&damaged, folder.path());
            if disks == [None, None] {
                refused += 1;
                continue;
            }
            accepted += 1;
            std::fs::write(path("image"), &damaged).unwrap();
            // Damage that nobody reads makes no difference, so qemu-img is asked only about the others.
            let expected = if disks.iter().flatten().all(|disk| *disk == vmdk.disk()) && is_unread(place) {
                vmdk.disk()
            } else {
                assert!(
                    tools::qemu_converts("vmdk", &path("image"), &path("raw")),
                    "qemu-img refuses what we accept: byte {place:#x} ^ {change:#x}"
                );
                std::fs::read(path("raw")).unwrap()
            };
            for disk in disks.iter().flatten() {
                assert!(
                    *disk == expected,
                    "{tables:?} {compressed}: byte {place:#x} ^ {change:#x}"
                );
            }
        }
    }
    assert!(
        refused > 100 && accepted > 10,
        "{refused} refused, {accepted} accepted"
    );
}

/// The clean-shutdown mark and the bytes that tell transfers of text.
fn is_unread(place: usize) -> bool {
    (72..77).contains(&place)
}

#[test]
fn damage_to_an_image_with_its_tables_first() {
    check(Tables::First, false);
}

#[test]
fn damage_to_an_image_with_its_tables_last() {
    check(Tables::Last, false);
}

#[test]
fn damage_to_a_stream_with_its_tables_first() {
    check(Tables::First, true);
}

#[test]
fn damage_to_a_stream_with_a_footer() {
    check(Tables::Footer, true);
}
