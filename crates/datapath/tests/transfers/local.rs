//! Reads files and devices of this machine in order.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;
use stream::buffer::{CHUNK_BYTES, PAGE, SMALL_BYTES};
use stream::local::{LocalExtent, LocalFile, LocalReader};
use testkit::disk;
use testkit::loopdev::LoopDevice;

use crate::common::fast_folder;

const MIB: usize = 1 << 20;

/// Reads the next part and compares it with the same place in `expected`. Returns the length of
/// the part if it is a hole, otherwise 0, and `None` at the end.
#[track_caller]
fn check_next(reader: &mut LocalReader, chunk_bytes: usize, expected: &[u8]) -> Option<u64> {
    let at = usize::try_from(reader.position()).unwrap();
    match reader.next_part().unwrap()? {
        LocalExtent::Hole(bytes) => {
            let hole = &expected[at..at + usize::try_from(bytes).unwrap()];
            assert!(hole.iter().all(|byte| *byte == 0), "a hole at {at}");
            Some(bytes)
        }
        LocalExtent::Data(bytes) => {
            assert!(bytes == expected[at..at + bytes.len()], "bytes at {at}");
            assert!(!bytes.is_empty() && bytes.len() <= chunk_bytes);
            let lies_right = bytes.as_ptr().addr() % PAGE == at % PAGE;
            assert!(lies_right || bytes.len() < SMALL_BYTES, "not aligned as on the disk");
            Some(0)
        }
    }
}

/// Reads `path` once from beginning to end, and once with skips to each of `places` in order.
/// Returns the bytes in holes of the first time.
#[track_caller]
fn assert_reads(path: &Path, chunk_bytes: usize, places: &[usize], expected: &[u8]) -> u64 {
    let local = LocalFile::new(File::open(path).unwrap()).unwrap();
    assert_eq!(local.size(), expected.len() as u64);
    let mut holes = 0;
    let mut reader = local.chunk_reader(chunk_bytes);
    while let Some(hole) = check_next(&mut reader, chunk_bytes, expected) {
        holes += hole;
    }
    assert_eq!(reader.position(), local.size());

    let mut reader = local.chunk_reader(chunk_bytes);
    for place in places {
        check_next(&mut reader, chunk_bytes, expected);
        reader.skip_to(reader.position().max(*place as u64));
    }
    while check_next(&mut reader, chunk_bytes, expected).is_some() {}
    assert_eq!(reader.position(), local.size());
    holes
}

/// Alternate runs of zeros and data, in pages of 4 KiB and some bytes.
fn runs() -> impl Strategy<Value = Vec<(usize, usize)>> {
    let run = prop_oneof![0usize..40, 0usize..400];
    prop::collection::vec((run, prop_oneof![Just(0), 0usize..4096]), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_file_is_read_correctly_whatever_its_holes(
        runs in runs(),
        chunk_pages in prop_oneof![Just(CHUNK_BYTES / PAGE), 1..=CHUNK_BYTES / PAGE],
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let folder = fast_folder();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        let mut expected = Vec::new();
        for (number, (pages, bytes)) in runs.into_iter().enumerate() {
            let (start, length) = (expected.len(), pages * PAGE + bytes);
            expected.resize(start + length, 0);
            if number % 2 == 1 {
                expected[start..].copy_from_slice(&disk::content(number as u64, length as u64));
                file.write_all_at(&expected[start..], start as u64).unwrap();
            }
        }
        file.set_len(expected.len() as u64).unwrap();
        let mut places: Vec<_> = places.iter().map(|place| place.index(expected.len() + 1)).collect();
        places.sort_unstable();
        assert_reads(&path, chunk_pages * PAGE, &places, &expected);
    }
}

#[test]
fn large_holes_are_skipped_and_small_ones_are_read() {
    let folder = fast_folder();
    let path = folder.path().join("file");
    let file = File::create(&path).unwrap();
    let mut expected = vec![0; 64 * MIB];
    file.set_len(expected.len() as u64).unwrap();
    // Every other page in a MiB, and two single pages elsewhere.
    let pages = (0..MIB).step_by(2 * PAGE).map(|at| 8 * MIB + at);
    for at in pages.chain([30 * MIB, 64 * MIB - PAGE]) {
        expected[at..at + PAGE].fill(7);
        file.write_all_at(&expected[at..at + PAGE], at as u64).unwrap();
    }
    let holes = assert_reads(&path, CHUNK_BYTES, &[MIB, 20 * MIB, 31 * MIB], &expected);
    let read = expected.len() as u64 - holes;
    assert!((MIB as u64..2 * MIB as u64).contains(&read), "{read} bytes were read");
}

#[test]
#[ignore = "root: loop devices"]
fn a_device_is_read_correctly_with_direct_io() {
    let folder = tempfile::tempdir().unwrap();
    for (bytes, sector_size) in [(21 * MIB + 512, 512), (9 * MIB, 4096), (512, 512)] {
        let device = LoopDevice::new(folder.path(), bytes as u64, sector_size);
        let expected = disk::content(bytes as u64, bytes as u64);
        std::fs::write(device.path(), &expected).unwrap();
        // Near, far away, and in the last sector.
        let places = [5000, 6 * MIB + 1, 8 * MIB, 20 * MIB + 7, 21 * MIB + 100];
        let places = places.map(|place| place.min(bytes));
        for chunk_bytes in [CHUNK_BYTES, CHUNK_BYTES - PAGE, PAGE] {
            assert_eq!(assert_reads(device.path(), chunk_bytes, &places, &expected), 0);
        }
    }
}

#[test]
fn reading_a_file_that_was_truncated_ends_at_its_new_end() {
    let folder = fast_folder();
    let path = folder.path().join("file");
    std::fs::write(&path, vec![7; MIB]).unwrap();
    let local = LocalFile::new(File::open(&path).unwrap()).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    let mut reader = local.chunk_reader(CHUNK_BYTES);
    while let Some(LocalExtent::Data(_)) = reader.next_part().unwrap() {}
    assert_eq!((local.size(), local.size_now().unwrap()), (MIB as u64, 100));
}
