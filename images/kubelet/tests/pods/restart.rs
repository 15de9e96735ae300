//! Containers that fail and are restarted on the same volumes.

use kubelet::controller::{self, Import};
use kubelet::network::Network;
use kubelet::pod;
use kubelet::state::Verdict;
use kubelet::volumes::{Claim, Objects};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::nginx::Nginx;

use super::scene::{
    CLAIM_BYTES, Certificates, MIB, SERVER, assert_disk, assert_succeeded, with_claim,
};

#[test]
#[ignore = "server: nginx"]
fn an_import_fails_with_a_message_until_the_image_exists() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let network = Network::new();
    let nginx = Nginx::start(folder.path(), false, "root .;");
    network.open(nginx.address());
    let url = format!("http://{}:{}/disk.img", SERVER.0, nginx.address().port());
    let claim = Claim::filesystem(CLAIM_BYTES);
    let import = Import {
        env: &[("IMPORTER_SOURCE", "http"), ("IMPORTER_ENDPOINT", &url)],
        hosts: &[SERVER],
        ..Import::default()
    };
    let pod = controller::importer(&claim, &import);
    let ended = pod::start(&network, &pod, &with_claim(&claim)).wait("importer");
    let sentence = "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found";
    assert_eq!(ended.import(), Verdict::Failed(sentence.to_owned()), "{}", ended.log);
    assert_eq!(claim.names(), [""; 0]);

    let path = folder.path().join("disk.img");
    std::fs::write(&path, disk::content(3, MIB)).or_fail("the disk");
    let ended = pod::start(&network, &pod, &with_claim(&claim)).wait("importer");
    assert_succeeded(&ended.import(), &ended, "Import Complete");
    assert_disk(&claim, &path, MIB);
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn an_upload_succeeds_after_the_upload_pod_was_killed() {
    let network = Network::new();
    let certificates = Certificates::new("cdi-upload-disk", "client");
    let claim = Claim::filesystem(CLAIM_BYTES);
    let objects = Objects {
        files: [("certificates", certificates.server_secret())].into(),
        ..with_claim(&claim)
    };
    let pod = controller::upload_server(&claim, "certificates", "client", &[]);
    let mut running = pod::start(&network, &pod, &objects);
    running.wait_until_ready();
    // As CDI's tests do it: the image's shell kills the first process of the container.
    let (code, printed) = running.exec("cdi-upload-server", &["/bin/sh", "-c", "kill 1"]);
    assert_eq!(code, 0, "{printed}");
    let ended = running.wait("cdi-upload-server");
    // With exit code 0 the container would not be restarted.
    assert_ne!(ended.code, 0, "{}", ended.log);

    let folder = tempfile::tempdir().or_fail("a folder");
    let path = folder.path().join("disk.img");
    std::fs::write(&path, disk::content(3, MIB)).or_fail("the disk");
    let mut running = pod::start(&network, &pod, &objects);
    running.wait_until_ready();
    let content = std::fs::read(&path).or_fail("the disk");
    certificates.send(&network, &running, "/v1beta1/upload", &content).assert_uploaded();
    let ended = running.wait("cdi-upload-server");
    assert_succeeded(&ended.upload(), &ended, "Upload Complete");
    assert_disk(&claim, &path, MIB);
}
