//! Disks that do not fit, and targets that must not be touched.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use datapath::disk;
use stream::Error;
use stream::error::FormatError;
use testkit::tools;

use crate::common::objects::objects;
use crate::common::{Generated, Memory, fast_folder, file, transfer};

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn a_disk_that_is_too_large_is_refused_before_the_target_is_created() {
    for object in objects() {
        let size = object.disk.len() as u64;
        // The size of a stream is known only at its end, unless it is an image with a header.
        if !object.name.contains("cluster=") && object.name != "raw" {
            continue;
        }
        let target = disk::DiskOptions {
            available: size - 1,
            // Nothing can be created there, so an attempt to create it would give another error.
            ..file("/nonexistent/disk".as_ref())
        };
        let error = transfer(&Memory::ranged(object.bytes.clone()), &target).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "virtual image size {size} is larger than the reported available storage {}. A larger PVC is required",
                size - 1
            ),
            "{}",
            object.name
        );
    }
}

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn a_stream_that_turns_out_too_large_leaves_nothing_and_one_that_fits_exactly_is_accepted() {
    for object in objects() {
        let size = object.disk.len() as u64;
        let folder = fast_folder();
        let target = disk::DiskOptions { available: size - 1, ..file(&folder.path().join("disk")) };
        let source = Memory::new(object.bytes.clone());
        let error = transfer(&source, &target).unwrap_err();
        let Error::Format(FormatError::TooLarge { available, .. }) = error else {
            panic!("{}: {error}", object.name)
        };
        assert_eq!(available, size - 1);
        assert!(!target.path.exists());
        transfer(&source, &disk::DiskOptions { available: size, ..target.clone() }).unwrap();
        assert!(std::fs::read(&target.path).unwrap() == object.disk, "{}", object.name);
    }
}

#[test]
#[ignore = "tools: bzip2, xz, zstd"]
fn a_decompression_bomb_ends_with_the_size_error() {
    const UNIT_BYTES: usize = 16 << 20;
    let zeros = vec![0; UNIT_BYTES];
    for program in tools::COMPRESSORS {
        let unit = Bytes::from(tools::filter(program, ["-c"], &zeros));
        let (unit_bytes, given) = (unit.len(), Arc::new(AtomicUsize::new(0)));
        // Every codec reads the repeated stream as one, which expands to 1 TiB of zeros.
        let count = Arc::clone(&given);
        let source = Generated(move |index| {
            count.store(index + 1, Ordering::Relaxed);
            (index < 1 << 16).then(|| unit.clone())
        });
        let folder = fast_folder();
        let target = disk::DiskOptions { available: 10 << 20, ..file(&folder.path().join("disk")) };
        let error = transfer(&source, &target).unwrap_err();
        let too_large = matches!(error, Error::Format(FormatError::TooLarge { available, .. }) if available == 10 << 20);
        assert!(too_large, "{program}: {error}");
        assert!(!target.path.exists());
        // The head that is examined may contain several of the small units, and threads that
        // decode xz read ahead.
        let given = given.load(Ordering::Relaxed);
        let ahead = if program == "xz" { 6 << 20 } else { 300_000 };
        assert!(given * unit_bytes <= ahead, "{program}: {given} units were read");
    }
}

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn an_existing_file_is_not_touched_unless_it_may_be_replaced() {
    let folder = fast_folder();
    let path = folder.path().join("disk");
    std::fs::write(&path, b"precious").unwrap();
    let source = Memory::ranged(objects()[0].bytes.clone());
    let too_small = disk::DiskOptions { overwrite: true, available: 4096, ..file(&path) };
    for target in [file(&path), too_small] {
        transfer(&source, &target).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
    let replacing = disk::DiskOptions { overwrite: true, ..file(&path) };
    transfer(&source, &replacing).unwrap();
    assert!(std::fs::read(&path).unwrap() == objects()[0].disk);
}
