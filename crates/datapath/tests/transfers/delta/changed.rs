//! Applies changed ranges to files and devices.

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytes::Bytes;
use datapath::delta::DeltaBase;
use datapath::disk::DiskOptions;
use datapath::options::WriteOptions;
use datapath::transfer_image;
use proptest::prelude::*;
use stream::changes::ChangedRanges;
use stream::options::{PayloadKind, ReadOptions, StatedDisk};
use stream::source::Source;
use testkit::disk;
use testkit::loopdev::LoopDevice;

use crate::common::{Memory, fast_folder, file};
use crate::delta::{MIB, apply};

const DISK_BYTES: u64 = 3 * MIB;

/// Returns a source of these ranges of a disk.
fn changed(disk: &[u8], ranges: &[Range<u64>]) -> Memory {
    let at = |offset: u64| usize::try_from(offset).unwrap();
    let parts: Vec<&[u8]> =
        ranges.iter().map(|range| &disk[at(range.start)..at(range.end)]).collect();
    Memory {
        chunks: vec![100_000, 1, 70_000, 512],
        stated: Some(StatedDisk::PLAIN),
        changes: Some(ChangedRanges::new(disk.len() as u64, ranges.iter().cloned()).unwrap()),
        ..Memory::new(parts.concat())
    }
}

fn base(path: &Path) -> DeltaBase {
    DeltaBase { disk: DiskOptions::new(path, u64::MAX), name: None, may_be_larger: true }
}

fn assert_apply(source: &Memory, base: &DeltaBase) -> u64 {
    let report = apply(source, base).unwrap();
    assert_eq!(Some(report.source_bytes), source.total_bytes());
    report.written_bytes
}

/// Returns a disk with blocks of data and of zeros, in a given order.
fn disk_with(blocks: &[u8]) -> Vec<u8> {
    let mut bytes = disk::content(7, DISK_BYTES);
    for (block, kind) in bytes.chunks_mut(48 << 10).zip(blocks.iter().cycle()) {
        match kind {
            0 => block.fill(0),
            1 => block.fill(0xA5),
            _ => {}
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    #[ignore = "slow: waits 7 s"]
    fn only_the_changed_ranges_of_the_disk_are_replaced(
        blocks in prop::collection::vec(0u8..3, 1..40),
        cuts in prop::collection::vec(0..DISK_BYTES / 512, 0..40),
        behind in 0..2 * MIB,
        is_direct in any::<bool>(),
    ) {
        let folder = fast_folder();
        let mut cuts: Vec<u64> = cuts.into_iter().map(|sector| sector * 512).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let ranges: Vec<Range<u64>> = cuts.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
        let new = disk_with(&blocks);
        // The file may be larger than the disk, because an earlier stage has grown it to the size
        // of the volume.
        let mut expected = disk::content(1, DISK_BYTES + behind);
        let target = folder.path().join("disk.img");
        std::fs::write(&target, &expected).unwrap();
        for range in &ranges {
            let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            expected[range.clone()].copy_from_slice(&new[range]);
        }
        let source = changed(&new, &ranges);
        let cache = if is_direct { datapath::disk::CacheMode::Direct } else { datapath::disk::CacheMode::Auto };
        for _ in 0..2 {
            let mut base = base(&target);
            base.disk.cache = cache;
            assert_apply(&source, &base);
            prop_assert!(std::fs::read(&target).unwrap() == expected);
        }
    }
}

#[test]
#[ignore = "root: loop devices"]
fn zeros_become_holes_in_a_file_and_zeros_on_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let old = disk::content(1, DISK_BYTES);
    let zeros = vec![0; old.len()];
    let source = changed(&zeros, std::slice::from_ref(&(MIB..3 * MIB)));
    let target = folder.path().join("disk.img");
    let blocks = || std::fs::metadata(&target).unwrap().blocks() * 512;

    std::fs::write(&target, &old).unwrap();
    let mut preallocated = base(&target);
    preallocated.disk.preallocate = true;
    assert_apply(&source, &preallocated);
    assert!(blocks() >= DISK_BYTES, "{} bytes are allocated", blocks());
    assert_eq!(
        assert_apply(&source, &base(&target)),
        0,
        "zeros must become holes without being written"
    );
    assert!(blocks() <= MIB + (64 << 10), "{} bytes are allocated", blocks());

    let device = LoopDevice::new(folder.path(), 4 * MIB, 512);
    assert_apply(&source, &base(device.path()));
    let bytes = std::fs::read(device.path()).unwrap();
    let (changed, untouched) = (usize::try_from(MIB).unwrap(), usize::try_from(3 * MIB).unwrap());
    assert!(bytes[changed..untouched].iter().all(|byte| *byte == 0));
    assert!(bytes[..changed].iter().chain(&bytes[untouched..]).all(|byte| *byte == 0xFF));
}

#[test]
fn changed_ranges_that_look_compressed_are_data() {
    let folder = fast_folder();
    let target = folder.path().join("disk.img");
    std::fs::write(&target, vec![0; 1 << 20]).unwrap();
    let mut new = vec![0; 1 << 20];
    new[4096..4100].copy_from_slice(b"\x1f\x8b\x08\x00");
    assert_apply(&changed(&new, std::slice::from_ref(&(4096..8192))), &base(&target));
    assert!(std::fs::read(&target).unwrap() == new);
}

#[test]
fn changes_that_do_not_fit_the_disk_are_refused() {
    let folder = fast_folder();
    let target = folder.path().join("disk.img");
    let (new, range) = (disk_with(&[1]), 0..512);
    let source = changed(&new, std::slice::from_ref(&range));
    let refused = |source: &Memory| apply(source, &base(&target)).unwrap_err().to_string();
    assert!(refused(&source).contains("no such file"));
    let (reading, writing) = (ReadOptions::default(), WriteOptions::default());
    let imported =
        transfer_image(&source, PayloadKind::default(), &file(&target), &reading, &writing);
    let message = imported.unwrap_err().to_string();
    assert!(message.contains("apply it to the disk of the earlier checkpoint"), "{message}");
    assert!(!target.exists());

    std::fs::write(&target, vec![7; 1 << 20]).unwrap();
    let message = refused(&source);
    assert!(message.contains("has 3145728 bytes") && message.contains("has 1048576"), "{message}");
    assert!(std::fs::read(&target).unwrap() == vec![7; 1 << 20]);

    for length in [511, 513] {
        std::fs::write(&target, vec![7; 3 << 20]).unwrap();
        let mut source = changed(&new, std::slice::from_ref(&range));
        source.bytes = Bytes::copy_from_slice(&new[..length]);
        let message = refused(&source);
        assert!(message.contains("does not have the 512 bytes that changed"), "{message}");
    }
}
