//! Images in xz files of many blocks, which several threads decode.

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Memory, fast_folder, file, noise, qemu_img};
use datapath::error::DecodeError;
use datapath::options::{PayloadKind, ReadOptions, WriteOptions};
use datapath::transfer::TransferReport;
use datapath::{Error, disk, transfer_image};

const MIB: usize = 1 << 20;

/// Returns a disk of 20 MiB and a partial sector: noise, text and zeros.
fn disk() -> Vec<u8> {
    let mut bytes = noise(3 * MIB, 5);
    bytes.resize(9 * MIB + 4321, 0);
    bytes.extend(b"The quick brown fox. ".iter().cycle().take(6 * MIB));
    bytes.extend(noise(2 * MIB, 6));
    bytes.resize(20 * MIB + 100, 0);
    bytes
}

/// Compresses `path` with `xz`, in blocks whose boundaries coincide with nothing else.
fn packed(path: &Path) -> Vec<u8> {
    let output = Command::new("xz")
        .args(["-c", "-0", "-T2", "--block-size=1000000"])
        .arg(path)
        .stderr(Stdio::inherit())
        .output()
        .expect("xz is needed: install the Debian package xz-utils");
    assert!(output.status.success());
    output.stdout
}

fn transfer_with(
    workers: usize,
    packed: &[u8],
    target: &disk::DiskOptions,
) -> Result<TransferReport, Error> {
    let options =
        WriteOptions { workers: NonZeroUsize::new(workers).unwrap(), ..WriteOptions::default() };
    transfer_image(
        &Memory::new(packed.to_vec()),
        PayloadKind::default(),
        target,
        &ReadOptions::default(),
        &options,
    )
}

#[test]
fn a_raw_disk_is_the_same_with_any_number_of_threads() {
    let folder = fast_folder();
    let (raw, disk_path) = (folder.path().join("raw"), folder.path().join("disk"));
    let mut disk = disk();
    std::fs::write(&raw, &disk).unwrap();
    let packed = packed(&raw);
    disk.resize(disk.len().next_multiple_of(512), 0);
    for workers in [1, 2, 4] {
        let target = disk::DiskOptions { overwrite: true, ..file(&disk_path) };
        let report = transfer_with(workers, &packed, &target).unwrap();
        assert_eq!(report.facts.layers, ["xz"]);
        assert_eq!(report.virtual_size, disk.len() as u64);
        assert_eq!(report.source_bytes, packed.len() as u64);
        assert!(report.written_bytes < 12 * MIB as u64, "{}", report.written_bytes);
        assert!(std::fs::read(&disk_path).unwrap() == disk, "{workers} workers");
    }
}

#[test]
fn a_qcow2_image_is_the_same_with_any_number_of_threads() {
    let folder = fast_folder();
    let path = |name: &str| folder.path().join(name);
    let mut disk = disk();
    disk.resize(21 * MIB, 0);
    std::fs::write(path("raw"), &disk).unwrap();
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &text("raw"), &text("image")]);
    let packed = packed(&path("image"));
    for workers in [1, 2, 4] {
        let target = file(&path(&format!("disk{workers}")));
        let report = transfer_with(workers, &packed, &target).unwrap();
        assert_eq!(report.virtual_size, disk.len() as u64);
        assert!(std::fs::read(&target.path).unwrap() == disk, "{workers} workers");
    }
}

#[test]
fn a_damaged_or_too_large_xz_disk_leaves_nothing() {
    let folder = fast_folder();
    let (raw, disk_path) = (folder.path().join("raw"), folder.path().join("disk"));
    let disk = disk();
    std::fs::write(&raw, &disk).unwrap();
    let packed = packed(&raw);
    let target = file(&disk_path);
    let fails = |packed: &[u8], target: &disk::DiskOptions| {
        let error = transfer_with(3, packed, target).unwrap_err();
        assert!(!disk_path.exists(), "{error}");
        error
    };

    let end = packed.len();
    match fails(&packed[..end - 1], &target) {
        Error::Decode(DecodeError::Truncated { offset, .. }) => assert_eq!(offset, end as u64 - 1),
        other => panic!("{other}"),
    }
    // The footer, the index, the last block, the first.
    for place in [end - 3, end - 40, end - 300, 1000] {
        let mut damaged = packed.clone();
        damaged[place] ^= 4;
        let error = fails(&damaged, &target);
        assert!(matches!(error, Error::Decode(DecodeError::Corrupt { .. })), "{error}");
    }
    let small = disk::DiskOptions { available: disk.len() as u64 - 1, ..target };
    let error = fails(&packed, &small);
    assert!(error.to_string().contains("A larger PVC is required"), "{error}");
}
