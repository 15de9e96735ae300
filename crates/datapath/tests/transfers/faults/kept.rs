//! Checks that the verified prefix of a raw disk that a killed attempt left is kept, and nothing
//! else.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use datapath::disk::VerifiedPrefix;
use datapath::options::WriteOptions;
use datapath::transfer_image;
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use stream::Error;
use stream::marks::{HELD_BYTES, MARK_BYTES, marks_of};
use stream::options::{PayloadKind, ReadOptions};
use stream::prefix_crc::PrefixCrc;
use testkit::disk;
use testkit::loopdev::{DIRT, LoopDevice};
use tokio_util::sync::CancellationToken;

use crate::common::{Memory, file};

const MIB: u64 = 1 << 20;
const DEVICE_BYTES: u64 = 24 * MIB;

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

/// Returns the checksums of an image at all offsets at which there can be one.
fn marks(image: &[u8]) -> Vec<PrefixCrc> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    disk::write_sparse(&path, image);
    let ends: Vec<u64> = (1..=24).map(|number| number * MARK_BYTES).collect();
    marks_of(&File::open(&path).unwrap(), &ends, &CancellationToken::new()).unwrap()
}

/// Writes what an attempt leaves that was killed after `there` bytes: a first MiB of zeros, the
/// right bytes up to `there`, and other bytes behind them.
fn leave(path: &Path, image: &[u8], there: u64) {
    let is_file = !datapath::disk::is_block_device(path);
    let file = File::options().write(true).create(is_file).truncate(is_file).open(path).unwrap();
    if is_file {
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    }
    file.write_all_at(&vec![DIRT; at(DEVICE_BYTES)], 0).unwrap();
    file.write_all_at(&vec![0; at(HELD_BYTES)], 0).unwrap();
    let there = at(there.max(HELD_BYTES));
    file.write_all_at(&image[at(HELD_BYTES)..there], HELD_BYTES).unwrap();
}

fn find(path: &Path, marks: &[PrefixCrc]) -> Option<VerifiedPrefix> {
    VerifiedPrefix::find_prefix(path, marks, &CancellationToken::new()).unwrap()
}

/// Sends `stream`, the part of an image that is not kept. Returns the size of the disk.
fn send(
    kept: VerifiedPrefix,
    path: &Path,
    stream: Vec<u8>,
    preallocate: bool,
    chunk: usize,
) -> Result<u64, Error> {
    let source = Memory { chunks: vec![chunk, 4096], ..Memory::new(stream) };
    let target = datapath::disk::DiskOptions { preallocate, overwrite: true, ..file(path) };
    let (reading, writing) = (
        ReadOptions::default(),
        WriteOptions { kept: Some(Arc::new(kept)), ..WriteOptions::default() },
    );
    let report = transfer_image(&source, PayloadKind::RAW, &target, &reading, &writing)?;
    Ok(report.virtual_size)
}

#[track_caller]
fn assert_disk(path: &Path, image: &[u8]) {
    let disk = fs::read(path).unwrap();
    assert!(disk[..image.len()] == *image, "the disk differs");
    assert!(datapath::disk::is_block_device(path) || disk.len() == image.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    #[ignore = "slow: waits 7 s"]
    fn the_longest_correct_prefix_is_kept(
        seed in any::<u64>(),
        sectors in 16 * 2048..40_000_u64,
        there in 0..20 * MIB,
        damaged in prop::option::of(0..20 * MIB),
        preallocate in any::<bool>(),
        kind in 0..3_u32,
        chunk in 1..300_000_usize,
    ) {
        let image = disk::sparse_content(seed, sectors * 512, 3);
        let (marks, there) = (marks(&image), there.min(image.len() as u64));
        let folder = tempfile::tempdir().unwrap();
        let device = (kind > 0).then(|| LoopDevice::new(folder.path(), DEVICE_BYTES, [512, 4096][kind as usize - 1]));
        let path = device.as_ref().map_or_else(|| folder.path().join("disk"), |device| device.path().to_owned());
        leave(&path, &image, there);
        let mut right = there;
        if let Some(damaged) = damaged.filter(|offset| (HELD_BYTES..there).contains(offset)) {
            let wrong = [!image[at(damaged)]];
            File::options().write(true).open(&path).unwrap().write_all_at(&wrong, damaged).unwrap();
            right = damaged;
        }
        let kept = find(&path, &marks);
        // Bytes behind `there` may be right by chance. Zeros are not, because the device was filled
        // with other bytes.
        let expected = Some(right / MARK_BYTES * MARK_BYTES).filter(|end| *end > HELD_BYTES).unwrap_or(0);
        prop_assert_eq!(kept.as_ref().map_or(0, VerifiedPrefix::end_offset), expected);
        if let Some(kept) = kept {
            let end = at(kept.end_offset());
            let stream = [&image[..at(HELD_BYTES)], &image[end..]].concat();
            let size = send(kept, &path, stream, preallocate, chunk).unwrap();
            prop_assert_eq!(size, image.len() as u64);
            assert_disk(&path, &image);
        }
    }
}

#[test]
fn a_stream_that_ends_before_the_kept_prefix_is_refused() {
    let image = disk::content(1, 8 * MIB);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    leave(&path, &image, image.len() as u64);
    let kept = find(&path, &marks(&image)).unwrap();
    let error = send(kept, &path, image[..at(HELD_BYTES) - 1].to_vec(), false, 4096).unwrap_err();
    assert!(error.to_string().contains("the stream ends before"), "{error}");
    assert!(!path.exists());
}

#[test]
fn only_leftovers_of_this_user_are_kept() {
    let image = disk::content(2, 8 * MIB);
    let marks = marks(&image);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    assert!(find(&path, &marks).is_none(), "the file does not exist");
    leave(&path, &image, image.len() as u64);
    assert!(find(&path, &marks[..0]).is_none(), "there is no checksum to compare with");
    fs::set_permissions(&path, Permissions::from_mode(0o660)).unwrap();
    assert!(find(&path, &marks).is_none(), "its mode says that it was complete");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let other = folder.path().join("other");
    fs::hard_link(&path, &other).unwrap();
    assert!(find(&path, &marks).is_none(), "it has a second name");
    fs::remove_file(&other).unwrap();
    symlink(&path, &other).unwrap();
    VerifiedPrefix::find_prefix(&other, &marks, &CancellationToken::new()).unwrap_err();
    let writer = File::open(&path).unwrap();
    writer.try_lock().unwrap();
    assert!(find(&path, &marks).is_none(), "another process has locked it");
    drop(writer);
    assert_eq!(find(&path, &marks).unwrap().end_offset(), 8 * MIB);
}

#[test]
fn a_hole_of_tebibytes_takes_no_time() {
    const TIB: u64 = 1 << 40;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let image = File::create_new(&path).unwrap();
    image.write_all_at(b"data", 3 * MIB).unwrap();
    image.set_len(8 * TIB).unwrap();
    let image = File::open(&path).unwrap();
    // The time of this thread, which does the reading; other tests run in the process meanwhile.
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let marks = marks_of(&image, &[7 * TIB], &CancellationToken::new()).unwrap();
    let spent = clock_gettime(ClockId::ThreadCPUTime) - before;
    assert_eq!(marks.len(), 1);
    assert!(spent.tv_sec == 0, "{spent:?} of processor time");
}

#[test]
fn a_stopped_search_for_a_prefix_reads_no_further() {
    let image = disk::content(4, 8 * MIB);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    leave(&path, &image, image.len() as u64);
    let stop = CancellationToken::new();
    stop.cancel();
    let file = File::open(&path).unwrap();
    assert_eq!(marks_of(&file, &[2 * MIB], &stop).unwrap(), []);
    let error = VerifiedPrefix::find_prefix(&path, &marks(&image), &stop).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
}
