//! Sources that fail, or whose content is not the expected one.

use std::fmt;

use stream::Error;
use stream::digest::{ChecksumMismatchError, DigestAlgorithm, RunningDigest};
use stream::options::ReadOptions;
use testkit::cases::check_all;
use testkit::images::vhd::{Footer, fixed};
use testkit::images::{Content, Spec};

use crate::common::objects::{Object, objects};
use crate::common::{Memory, fast_folder, file, transfer, transfer_reading};
use crate::faults::small_objects;

/// An object that fails at a byte.
struct Cut<'a> {
    object: &'a Object,
    at: usize,
}

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken at byte {}", self.object.name, self.at)
    }
}

fn cuts(objects: &[Object], step: usize) -> Vec<Cut<'_>> {
    let mut cuts = Vec::new();
    for object in objects {
        cuts.extend((0..object.bytes.len()).step_by(step).map(|at| Cut { object, at }));
    }
    cuts
}

fn check(cut: &Cut<'_>) {
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    let source = Memory {
        broken_at: Some(cut.at),
        chunks: vec![700],
        ..Memory::new(cut.object.bytes.clone())
    };
    let error = transfer(&source, &target).unwrap_err();
    assert!(matches!(error, Error::Source(_)), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something is left");
}

#[test]
#[ignore = "tools: bzip2, qemu-img, xz, zstd"]
fn a_source_that_fails_at_any_sector_leaves_nothing() {
    let folder = fast_folder();
    check_all(cuts(&small_objects(folder.path()), 512), check);
}

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn a_source_that_fails_after_data_was_written_leaves_nothing() {
    check_all(cuts(objects(), 50_001), check);
}

/// Returns the digest as `sha256:hex`.
fn sha256(bytes: &[u8]) -> String {
    let mut digest = RunningDigest::new(DigestAlgorithm::Sha256);
    digest.update(bytes);
    digest.finish_digest()
}

fn expecting(checksum: &str) -> ReadOptions {
    ReadOptions { checksum: Some(checksum.parse().unwrap()), ..ReadOptions::default() }
}

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn a_wrong_checksum_leaves_nothing_and_the_right_one_covers_the_whole_object() {
    let wrong = format!("sha256:{}", "0".repeat(64));
    for object in objects() {
        let calculated = sha256(&object.bytes);
        for ranged in [false, true] {
            let folder = fast_folder();
            let target = file(&folder.path().join("disk"));
            let source = Memory { ranged, ..Memory::new(object.bytes.clone()) };
            let error = transfer_reading(&source, &target, &expecting(&wrong)).unwrap_err();
            let Error::Checksum(mismatch) = error else { panic!("{}: {error}", object.name) };
            let (expected, calculated) = (wrong.clone(), calculated.clone());
            let right = expecting(&calculated);
            assert_eq!(
                mismatch,
                ChecksumMismatchError { expected, calculated: calculated.clone() }
            );
            assert!(!target.path.exists());
            let report = transfer_reading(&source, &target, &right).unwrap();
            assert_eq!(report.checksum, Some(calculated));
            assert!(std::fs::read(&target.path).unwrap() == object.disk, "{}", object.name);
        }
    }
}

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn with_read_all_a_failure_behind_the_image_is_an_error() {
    let mut behind = 0;
    let is_image =
        |object: &&Object| object.name.contains("cluster=") && !object.name.contains(" in ");
    for object in objects().iter().filter(is_image) {
        let image = object.bytes.len();
        let transfer_with = |read_all| {
            let folder = fast_folder();
            let source = Memory {
                broken_at: Some(image + 300_000),
                ..Memory::ranged([&object.bytes[..], &[0; 400_000]].concat())
            };
            let options = ReadOptions { read_all, ..ReadOptions::default() };
            let target = file(&folder.path().join("disk"));
            let outcome = transfer_reading(&source, &target, &options);
            assert_eq!(target.path.exists(), outcome.is_ok());
            outcome
        };
        behind += usize::from(transfer_with(false).is_ok());
        assert!(matches!(transfer_with(true), Err(Error::Source(_))), "{}", object.name);
    }
    assert!(behind > 0, "every source was read to its end even without `read_all`");
}

/// Imports the `honest` image, and then from a source that returns other bytes, `ahead`, when they
/// are read by range. The checksum is that of the honest image both times.
#[track_caller]
fn assert_detected(honest: Vec<u8>, ahead: Vec<u8>) {
    let folder = fast_folder();
    let options = expecting(&sha256(&honest));
    let target = file(&folder.path().join("disk"));
    let honest = Memory::ranged(honest);
    transfer_reading(&honest, &target, &options).unwrap();
    std::fs::remove_file(&target.path).unwrap();
    let source = Memory { ahead: Some(ahead.into()), ..honest };
    let error = transfer_reading(&source, &target, &options).unwrap_err();
    assert!(error.to_string().contains("differ between two reads"), "{error}");
    assert!(!target.path.exists());
}

/// The digest covers the stream, so a table that is read separately must not send data elsewhere.
#[test]
#[ignore = "tools: qemu-img"]
fn tables_that_differ_from_the_stream_are_detected() {
    let folder = fast_folder();
    let spec = Spec { resized_to: Some(2 << 30), ..Spec::new(Content::Dense) };
    let bytes = std::fs::read(spec.build(folder.path(), "resized").qcow2).unwrap();
    // qcow2.rst, "Header": bytes 40-47 are the offset of the L1 table, which moved to the end.
    let l1 = usize::try_from(u64::from_be_bytes(bytes[40..48].try_into().unwrap())).unwrap();
    assert!(l1 > 20 << 20, "the L1 table is at {l1:#x}");
    // The lowest bit of an L1 entry has no meaning, so only the comparison of the two reads can
    // find the change.
    let mut ahead = bytes.clone();
    ahead[l1 + 7] ^= 1;
    assert_detected(bytes, ahead);
}

/// A footer that is read separately decides how much of the stream belongs to the disk.
#[test]
fn a_footer_that_differs_from_the_stream_is_detected() {
    let disk = testkit::disk::content(1, 4 << 20);
    let honest = Footer::fixed(disk.len() as u64);
    // Virtual PC's disks are as large as their geometry.
    let small = Footer { creator: *b"vpc ", geometry: (1, 4, 17), ..honest.clone() };
    assert_detected(fixed(&disk, &honest), fixed(&disk, &small));
}
