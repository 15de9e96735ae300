//! Upload pods.

use kubelet::controller;
use kubelet::network::Network;
use kubelet::pod;
use kubelet::volumes::{Claim, Objects};
use testkit::fail::OrFail;
use testkit::oci;

use super::scene::{
    CLAIM_BYTES, Certificates, assert_disk, assert_succeeded, claims, disk_image, with_claim,
};

pub(crate) const SERVICE: &str = "cdi-upload-disk";
const CLIENT: &str = "client.upload-server.cdi.kubevirt.io";
const COMPLETE: &str = "Upload Complete";

#[test]
fn an_image_is_uploaded() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let content = std::fs::read(&image.qcow2).or_fail("the image");
    let network = Network::new();
    let certificates = Certificates::new(SERVICE, CLIENT);
    for path in ["/v1beta1/upload", "/v1beta1/upload-async"] {
        for claim in claims() {
            let objects = Objects {
                files: [(SERVICE, certificates.server_secret())].into(),
                ..with_claim(&claim)
            };
            let mut running = pod::start(
                &network,
                &controller::upload_server(&claim, SERVICE, CLIENT, &[]),
                &objects,
            );
            running.wait_until_ready();
            certificates
                .send(&network, &running, path, &content)
                .assert(200, "");
            let ended = running.wait("cdi-upload-server");
            assert_succeeded(&ended.upload(), &ended, COMPLETE);
            assert_disk(&claim, &image.raw, image.virtual_size);
        }
    }
}

#[test]
fn files_are_uploaded() {
    let tar = oci::tar(&[("one.txt", b"1"), ("folder/two.txt", b"2")]);
    let network = Network::new();
    let certificates = Certificates::new(SERVICE, CLIENT);
    let claim = Claim::filesystem(CLAIM_BYTES);
    let objects = Objects {
        files: [(SERVICE, certificates.server_secret())].into(),
        ..with_claim(&claim)
    };
    let mut running = pod::start(
        &network,
        &controller::upload_server(&claim, SERVICE, CLIENT, &[]),
        &objects,
    );
    running.wait_until_ready();
    certificates
        .send(&network, &running, "/v1beta1/upload-archive", &tar)
        .assert(200, "");
    let ended = running.wait("cdi-upload-server");
    assert_succeeded(&ended.upload(), &ended, COMPLETE);
    assert_eq!(claim.names(), ["folder", "one.txt"]);
}

#[test]
fn nobody_else_may_upload_and_what_is_too_large_is_refused() {
    let network = Network::new();
    let certificates = Certificates::new(SERVICE, "somebody.else");
    let claim = Claim::filesystem(CLAIM_BYTES);
    let objects = Objects {
        files: [(SERVICE, certificates.server_secret())].into(),
        ..with_claim(&claim)
    };
    let running = pod::start(
        &network,
        &controller::upload_server(&claim, SERVICE, CLIENT, &[]),
        &objects,
    );
    running.wait_until_ready();
    certificates
        .send(&network, &running, "/v1beta1/upload", b"x")
        .assert(401, "");
    drop(running);
    let certificates = Certificates::new(SERVICE, CLIENT);
    let objects = Objects {
        files: [(SERVICE, certificates.server_secret())].into(),
        ..with_claim(&claim)
    };
    let running = pod::start(
        &network,
        &controller::upload_server(&claim, SERVICE, CLIENT, &[]),
        &objects,
    );
    running.wait_until_ready();
    let answer = certificates.send(
        &network,
        &running,
        "/v1beta1/upload",
        &vec![1; CLAIM_BYTES as usize],
    );
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(
        answer.text().contains("effective image size is larger"),
        "{}",
        answer.text()
    );
    assert_eq!(claim.names(), [""; 0]);
}
