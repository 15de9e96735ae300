//! Blank disks.

use std::os::unix::fs::MetadataExt;

use kubelet::controller::Import;
use kubelet::state::Terminated;
use kubelet::volumes::{Claim, QEMU};
use testkit::disk;
use testkit::fail::OrFail;

use super::scene::{CLAIM_BYTES, COMPLETE, Scene, assert_allocation, success};

/// Makes a blank disk.
fn blank(scene: &Scene, claim: &Claim, preallocate: bool) -> Terminated {
    let word = if preallocate { "true" } else { "false" };
    let env = &[("IMPORTER_SOURCE", "none"), ("PREALLOCATION", word)];
    scene.import(claim, &Import { env, ..Import::default() })
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn a_blank_disk_is_all_zeros() {
    let scene = Scene::new();
    for preallocate in [false, true] {
        let claim = Claim::filesystem(CLAIM_BYTES);
        let ended = blank(&scene, &claim, preallocate);
        assert_eq!(ended.import(), success(COMPLETE, preallocate), "{}", ended.log);
        let metadata = claim.disk().metadata().or_fail("the disk");
        assert!(metadata.len() > CLAIM_BYTES / 2);
        assert!(disk::begins_with_only(&[0], &claim.disk(), metadata.len()));
        assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o660, QEMU));
        assert_allocation(&claim, preallocate);
    }
}

#[test]
#[ignore = "root: block devices"]
fn a_blank_device_is_left_alone_unless_it_is_preallocated() {
    let scene = Scene::new();
    // Like upstream, the importer writes no message if it did nothing to a device (contract §1.3).
    for (preallocate, byte, message) in [(false, 0xFF, ""), (true, 0, COMPLETE)] {
        let claim = Claim::block(CLAIM_BYTES);
        let ended = blank(&scene, &claim, preallocate);
        assert_eq!(ended.import(), success(message, preallocate), "{}", ended.log);
        assert_eq!(ended.message.is_empty(), !preallocate, "{}", ended.message);
        let is_filled = disk::begins_with_only(&[byte], &claim.disk(), CLAIM_BYTES);
        assert!(is_filled, "preallocation {preallocate}");
    }
}
