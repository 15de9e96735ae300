//! Clones as CDI's cloner sends them: framed snappy around a device, or around a tar that contains
//! a disk.

use std::io::Write;

use codec::decode::Codec;
use datapath::options::WriteOptions;
use datapath::transfer::TransferReport;
use datapath::transfer_image;
use diskimage::Format;
use stream::Error;
use stream::error::{ArchiveErrorKind, DecodeError, FormatError};
use stream::options::{CompressionLayers, PayloadKind, ReadOptions};
use testkit::loopdev::LoopDevice;
use testkit::{disk, tools};

use crate::archive::tape::Tape;
use crate::archive::{gnu_packs, refusal, snapshot, unpack_with};
use crate::common::{Memory, fast_folder, file};

const DISK_BYTES: u64 = 6 << 20;

/// Returns `bytes` as framed snappy, like the cloner.
pub(crate) fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.into_inner().unwrap()
}

/// Returns options for a single layer of snappy.
fn framed() -> ReadOptions {
    ReadOptions { layers: CompressionLayers::Only(Codec::Snappy), ..ReadOptions::default() }
}

fn transfer(
    body: &[u8],
    inside: PayloadKind,
    target: &datapath::disk::DiskOptions,
) -> Result<TransferReport, Error> {
    let source = Memory::new(body.to_vec());
    transfer_image(&source, inside, target, &framed(), &WriteOptions::default())
}

/// Transfers `body` to a file and to a device with other content; both must then hold `disk`.
fn clone(body: &[u8], inside: PayloadKind, disk: &[u8]) -> TransferReport {
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(folder.path(), disk.len() as u64, 512);
    let on_device = transfer(body, inside, &file(device.path())).unwrap();
    assert!(std::fs::read(device.path()).unwrap() == disk, "the device differs");

    let target = file(&folder.path().join("disk"));
    let report = transfer(body, inside, &target).unwrap();
    assert!(std::fs::read(&target.path).unwrap() == disk, "the file differs");
    assert_eq!(report.facts, on_device.facts);
    assert_eq!(report.facts.format, Format::Raw);
    assert_eq!(report.source_bytes, body.len() as u64);
    report
}

#[test]
#[ignore = "root: loop devices"]
fn a_cloned_device_is_not_interpreted() {
    let sparse = disk::sparse_content(3, DISK_BYTES, 3);
    let compressed = tools::filter("gzip", ["-c"], &disk::content(4, 1 << 20));
    let image = [&b"QFI\xfb\0\0\0\x03"[..], &sparse[8..]].concat();
    let tar = Tape::default().file("disk.img", &sparse).end();
    for mut guest in [sparse, compressed, image, tar, vec![0; 1 << 20]] {
        guest.resize(guest.len().next_multiple_of(512), 0);
        let report = clone(&snappy(&guest), PayloadKind::RAW, &guest);
        assert_eq!(report.facts.layers, ["snappy"]);
    }
}

const FORMATS: [&[&str]; 5] = [
    &[],
    &["-S", "--format=gnu"],
    &["-S", "--format=pax", "--sparse-version=1.0"],
    &["-S", "--format=pax", "--sparse-version=0.1"],
    &["-S", "--format=pax", "--sparse-version=0.0"],
];

#[test]
#[ignore = "root: loop devices"]
fn the_disk_of_a_volume_is_cloned_to_a_device_or_file() {
    let folder = fast_folder();
    let content = disk::sparse_content(5, DISK_BYTES, 4);
    disk::write_sparse(&folder.path().join("disk.img"), &content);
    std::fs::write(folder.path().join("another"), vec![1; 5000]).unwrap();
    std::fs::create_dir(folder.path().join("zfolder")).unwrap();
    std::fs::write(folder.path().join("zfolder/last"), vec![2; 5000]).unwrap();
    for flags in FORMATS {
        let tar = gnu_packs(folder.path(), flags, &["another", "disk.img", "zfolder"]);
        let report = clone(&snappy(&tar), PayloadKind::CloneOfFiles, &content);
        assert_eq!(report.facts.layers, ["snappy", "tar"]);
        assert_eq!(report.facts.virtual_size, Some(DISK_BYTES));
        assert!(report.written_bytes < DISK_BYTES / 2, "holes must not be written");
    }
}

#[test]
fn a_volume_is_cloned_to_a_directory_with_its_holes() {
    let folder = fast_folder();
    let content = disk::sparse_content(6, DISK_BYTES, 4);
    disk::write_sparse(&folder.path().join("disk.img"), &content);
    let expected = snapshot::without_time_of_root(folder.path());
    for flags in &FORMATS[1..] {
        let tar = gnu_packs(folder.path(), flags, &["disk.img"]);
        let copy = fast_folder();
        let options = framed();
        let report = unpack_with(copy.path(), &snappy(&tar), u64::MAX, &options).unwrap();
        assert_eq!(report.data_bytes, DISK_BYTES);
        assert!(report.written_bytes < DISK_BYTES / 2, "holes must not be written");
        let mut seen = snapshot::without_time_of_root(copy.path());
        // Only pax stores fractions of a second.
        for (path, entry) in &mut seen {
            entry.mtime.1 = expected[path].mtime.1;
        }
        snapshot::assert_same(&seen, &expected, &format!("{flags:?}"));
    }
}

fn clone_error(tar: &[u8], target: &datapath::disk::DiskOptions) -> Error {
    transfer(&snappy(tar), PayloadKind::CloneOfFiles, target).unwrap_err()
}

#[test]
fn a_clone_without_a_disk_touches_nothing() {
    // Nothing can be created there, so an attempt to create it would give another error.
    let nowhere = file("/nonexistent/disk".as_ref());
    for tape in [
        Tape::default(),
        Tape::default().file("other.img", b"x"),
        Tape::default().directory("disk.img", 0o755),
        Tape::default().symlink("disk.img", "elsewhere"),
    ] {
        let error = clone_error(&tape.end(), &nowhere);
        assert_eq!(*refusal(&error), ArchiveErrorKind::NoDiskImage);
        assert_eq!(error.to_string(), "no disk image found in tar");
    }
    let error = clone_error(b"not a tar", &nowhere);
    assert_eq!(*refusal(&error), ArchiveErrorKind::NotTar);
}

#[test]
fn a_disk_that_is_too_large_is_refused_before_the_target_is_created() {
    let target =
        datapath::disk::DiskOptions { available: 1023, ..file("/nonexistent/disk".as_ref()) };
    for size in ["1024", "18446744073709551615"] {
        let records = [("GNU.sparse.size", size), ("GNU.sparse.map", "0,0")];
        let tar = Tape::default().pax(&records).file("disk.img", b"").end();
        let error = clone_error(&tar, &target);
        assert!(matches!(error, Error::Format(FormatError::TooLarge { .. })), "{error}");
    }
}

#[test]
#[ignore = "root: loop devices"]
fn a_file_that_resembles_the_disk_is_used_unless_the_disk_follows() {
    let disk = vec![7; 4096];
    let guess = Tape::default().file("a", b"x").file("old-disk.img.bak", &disk);
    clone(&snappy(&guess.clone().end()), PayloadKind::CloneOfFiles, &disk);
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    let error = clone_error(&guess.file("disk.img", &[8; 4096]).end(), &target);
    let reason = refusal(&error).to_string();
    assert!(reason.contains("`old-disk.img.bak` came before this entry, and both"), "{reason}");
    assert!(!target.path.exists());
    let first_wins =
        Tape::default().file("disk.img", &disk).file("disk.img.bak", b"x").file("b/disk.img", b"y");
    clone(&snappy(&first_wins.end()), PayloadKind::CloneOfFiles, &disk);
}

/// Returns the offsets at which the chunks of a framed stream end.
fn boundaries(body: &[u8]) -> Vec<usize> {
    let mut ends = vec![0];
    while let Some([_, low, middle, high, ..]) = body.get(*ends.last().unwrap()..) {
        let length = usize::from(*low) | usize::from(*middle) << 8 | usize::from(*high) << 16;
        ends.push(ends.last().unwrap() + 4 + length);
    }
    ends
}

#[test]
fn a_truncated_or_damaged_clone_leaves_nothing() {
    let content = disk::sparse_content(7, 1 << 20, 2);
    let tar = Tape::default().file("disk.img", &content).file("rest", &[9; 3000]).end();
    let bodies = [(snappy(&content), PayloadKind::RAW), (snappy(&tar), PayloadKind::CloneOfFiles)];
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    for (body, inside) in bodies {
        for place in (10..body.len() - 1).step_by(body.len() / 50) {
            match transfer(&body[..place], inside, &target) {
                // The framing has no end mark, so a stream that is cut between two chunks looks
                // complete; only the length of the body would tell.
                Ok(_) => {
                    assert!(inside == PayloadKind::RAW && boundaries(&body).contains(&place));
                    std::fs::remove_file(&target.path).unwrap();
                }
                Err(error) => {
                    assert!(matches!(error, Error::Decode(_) | Error::Format(_)), "{error}")
                }
            }
            let mut damaged = body.clone();
            damaged[place] ^= 0x10;
            if transfer(&damaged, inside, &target).is_ok() {
                // Snappy can encode the same data in several ways, so a changed byte may give the
                // same disk.
                assert!(std::fs::read(&target.path).unwrap() == content);
                std::fs::remove_file(&target.path).unwrap();
            }
            assert!(!target.path.exists());
        }
    }
}

#[test]
fn a_clone_that_is_not_snappy_is_refused() {
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    for inside in [PayloadKind::RAW, PayloadKind::CloneOfFiles] {
        for body in [&[0; 4096][..], b"\x1f\x8b\x08\0", b"\xff\x06\0\0sNaPpZ"] {
            let error = transfer(body, inside, &target).unwrap_err();
            assert!(matches!(error, Error::Decode(DecodeError::Corrupt { .. })), "{error}");
        }
        let error = transfer(&snappy(b""), inside, &target).unwrap_err();
        assert!(matches!(error, Error::Decode(DecodeError::Empty)), "{error}");
        assert!(!target.path.exists());
    }
}
