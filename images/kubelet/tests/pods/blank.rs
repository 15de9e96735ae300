//! Blank disks.

use std::os::unix::fs::MetadataExt;

use kubelet::controller::Import;
use kubelet::network::Network;
use kubelet::volumes::{Claim, QEMU};
use testkit::disk;
use testkit::fail::OrFail;

use super::scene::{CLAIM_BYTES, allocated_bytes, import, success};

/// The environment for a blank disk with this value of `PREALLOCATION`.
fn blank(preallocate: bool) -> [(&'static str, &'static str); 2] {
    let word = if preallocate { "true" } else { "false" };
    [("IMPORTER_SOURCE", "none"), ("PREALLOCATION", word)]
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn a_blank_disk_is_all_zeros() {
    let network = Network::new();
    for preallocate in [false, true] {
        let claim = Claim::filesystem(CLAIM_BYTES);
        let pod = Import { env: &blank(preallocate), ..Import::default() };
        let ended = import(&network, &claim, &pod, &[]);
        assert_eq!(ended.import(), success("Import Complete", preallocate), "{}", ended.log);
        let metadata = claim.disk().metadata().or_fail("the disk");
        assert!(metadata.len() > CLAIM_BYTES / 2);
        assert!(disk::begins_with_only(&[0], &claim.disk(), metadata.len()));
        assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o660, QEMU));
        assert_eq!(allocated_bytes(&claim) >= metadata.len(), preallocate);
    }
}

#[test]
fn a_blank_device_is_left_alone_unless_it_is_preallocated() {
    let network = Network::new();
    for (preallocate, byte) in [(false, 0xFF), (true, 0)] {
        let claim = Claim::block(CLAIM_BYTES);
        let pod = Import { env: &blank(preallocate), ..Import::default() };
        let ended = import(&network, &claim, &pod, &[]);
        // Like upstream, the importer writes no message if it did nothing to a device (contract
        // §1.3).
        let message = if preallocate { "Import Complete" } else { "" };
        assert_eq!(ended.import(), success(message, preallocate), "{}", ended.log);
        assert_eq!(ended.message.is_empty(), !preallocate, "{}", ended.message);
        assert!(
            disk::begins_with_only(&[byte], &claim.disk(), CLAIM_BYTES),
            "preallocation {preallocate}"
        );
    }
}
