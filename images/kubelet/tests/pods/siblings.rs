//! Pods that run the importer image's other programs.

use kubelet::controller;
use kubelet::network::Network;
use kubelet::pod;
use kubelet::volumes::Claim;
use testkit::fail::OrFail;

use super::scene::{CLAIM_BYTES, disk_image, with_claim};

#[test]
fn the_size_of_a_disk_is_detected() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let claim = Claim::filesystem(CLAIM_BYTES);
    let network = Network::new();
    for (file, bytes) in [
        (&image.qcow2, image.virtual_size),
        (&image.raw, image.virtual_size),
    ] {
        std::fs::copy(file, claim.disk()).or_fail("a disk");
        let ended = pod::start(&network, &controller::size_detection(&claim), &with_claim(&claim))
            .wait("size-detection");
        assert_eq!(
            (ended.code, ended.message),
            (0, bytes.to_string()),
            "{}",
            ended.log
        );
    }
    std::fs::remove_file(claim.disk()).or_fail("a disk");
    let ended =
        pod::start(&network, &controller::size_detection(&claim), &with_claim(&claim)).wait("size-detection");
    // Appendix B: an invalid path.
    assert_eq!(ended.code, 3, "{}", ended.log);
}
