//! Checks that after a failure the first MiB of a block device is zero. A device cannot be
//! removed, and so nothing boots from it.

use datapath::disk;
use stream::Error;
use stream::error::FormatError;
use stream::marks::HELD_BYTES;
use stream::options::ReadOptions;
use testkit::loopdev::{DIRT, LoopDevice};

use crate::common::objects::{DISK_BYTES, Object, objects};
use crate::common::{Memory, file, make_dirty, transfer, transfer_reading};

const DEVICE_BYTES: u64 = 8 << 20;

/// Returns the content of the device.
fn content(device: &LoopDevice) -> Vec<u8> {
    std::fs::read(device.path()).unwrap()
}

fn assert_hidden(device: &LoopDevice, what: &str) {
    let held = usize::try_from(HELD_BYTES).unwrap();
    assert!(
        content(device)[..held].iter().all(|byte| *byte == 0),
        "{what}: the first MiB is not zero"
    );
}

fn is_untouched(device: &LoopDevice) -> bool {
    content(device).iter().all(|byte| *byte == DIRT)
}

/// Runs `check` on a new device of each sector size.
fn on_devices(check: impl Fn(&LoopDevice)) {
    let folder = tempfile::tempdir().unwrap();
    for sector_size in [512, 4096] {
        check(&LoopDevice::new(folder.path(), DEVICE_BYTES, sector_size));
    }
}

#[test]
#[ignore = "slow: waits 4 s"]
fn a_source_that_fails_leaves_the_first_mib_zero() {
    on_devices(|device| {
        for object in objects() {
            for (cut, preallocate) in [(3, false), (2, true)] {
                make_dirty(device);
                let at = object.bytes.len() * cut / 4;
                let source = Memory { broken_at: Some(at), ..Memory::new(object.bytes.clone()) };
                let target = disk::DiskOptions { preallocate, ..file(device.path()) };
                let error = transfer(&source, &target).unwrap_err();
                assert!(matches!(error, Error::Source(_)), "{error}");
                // A codec with large blocks may return nothing before the cut; then the device was
                // not even opened.
                let may_be_untouched = object.name.contains(" in ");
                if !(may_be_untouched && is_untouched(device)) {
                    assert_hidden(device, &format!("{} broken at {at}", object.name));
                }
            }
        }
    });
}

#[test]
#[ignore = "root: loop devices"]
fn a_wrong_checksum_leaves_the_first_mib_zero() {
    let checksum = Some(format!("md5:{}", "0".repeat(32)).parse().unwrap());
    let options = ReadOptions { checksum, ..ReadOptions::default() };
    on_devices(|device| {
        for object in objects() {
            make_dirty(device);
            let source = Memory::new(object.bytes.clone());
            let error = transfer_reading(&source, &file(device.path()), &options).unwrap_err();
            assert!(matches!(error, Error::Checksum { .. }), "{error}");
            assert_hidden(device, &object.name);
        }
    });
}

#[test]
#[ignore = "slow: waits 6 s"]
fn a_disk_is_written_completely_over_old_content() {
    on_devices(|device| {
        for object in objects() {
            for ranged in [false, true] {
                make_dirty(device);
                let source = Memory { ranged, ..Memory::new(object.bytes.clone()) };
                transfer(&source, &file(device.path())).unwrap();
                assert!(content(device)[..object.disk.len()] == object.disk, "{}", object.name);
            }
        }
    });
}

#[test]
#[ignore = "root: loop devices"]
fn a_device_that_is_too_small_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(folder.path(), DISK_BYTES / 4096 * 4096, 4096);
    let header_first = |object: &&Object| object.name.contains("cluster=") || object.name == "raw";
    for object in objects().iter().filter(header_first) {
        let source = Memory::ranged(object.bytes.clone());
        let error = transfer(&source, &file(device.path())).unwrap_err();
        let Error::Format(FormatError::TooLarge { available, .. }) = error else {
            panic!("{}: {error}", object.name)
        };
        assert_eq!(available, device.bytes());
        assert!(is_untouched(&device), "{}", object.name);
    }
}
