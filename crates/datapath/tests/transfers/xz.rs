//! Images in xz files of many blocks, which several threads decode.

use std::num::NonZeroUsize;

use datapath::options::WriteOptions;
use datapath::transfer::TransferReport;
use datapath::{disk, transfer_image};
use stream::Error;
use stream::error::DecodeError;
use stream::options::{PayloadKind, ReadOptions};
use testkit::tools;

use crate::common::{Memory, fast_folder, file, noise, qemu_img};

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

/// Compresses with `xz`, in blocks whose boundaries coincide with nothing else.
fn packed(bytes: &[u8]) -> Vec<u8> {
    tools::filter("xz", ["-c", "-0", "-T2", "--block-size=1000000"], bytes)
}

fn transfer_with(
    workers: usize,
    packed: &[u8],
    target: &disk::DiskOptions,
) -> Result<TransferReport, Error> {
    let workers = NonZeroUsize::new(workers).unwrap();
    let (reading, writing) =
        (ReadOptions::default(), WriteOptions { workers, ..WriteOptions::default() });
    let source = Memory::new(packed.to_vec());
    transfer_image(&source, PayloadKind::default(), target, &reading, &writing)
}

#[test]
#[ignore = "tools: qemu-img, xz"]
fn disks_are_the_same_with_any_number_of_threads() {
    let folder = fast_folder();
    let path = |name: &str| folder.path().join(name);
    let mut disk = disk();
    std::fs::write(path("raw"), &disk).unwrap();
    let [raw, image] = ["raw", "image"].map(|name| path(name).to_str().unwrap().to_owned());
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &raw, &image]);
    let objects = [packed(&disk), packed(&std::fs::read(image).unwrap())];
    disk.resize(disk.len().next_multiple_of(512), 0);
    for packed in objects {
        for workers in [1, 2, 4] {
            let target = disk::DiskOptions { overwrite: true, ..file(&path("disk")) };
            let report = transfer_with(workers, &packed, &target).unwrap();
            assert_eq!(report.facts.layers, ["xz"]);
            assert_eq!(report.virtual_size, disk.len() as u64);
            assert_eq!(report.source_bytes, packed.len() as u64);
            assert!(report.written_bytes < 12 * MIB as u64, "{}", report.written_bytes);
            assert!(std::fs::read(&target.path).unwrap() == disk, "{workers} workers");
        }
    }
}

#[test]
#[ignore = "tools: xz"]
fn a_damaged_or_too_large_xz_disk_leaves_nothing() {
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    let disk = disk();
    let packed = packed(&disk);
    let fails = |packed: &[u8], target: &disk::DiskOptions| {
        let error = transfer_with(3, packed, target).unwrap_err();
        assert!(!target.path.exists(), "{error}");
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
