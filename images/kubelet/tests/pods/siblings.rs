//! Pods that run the other programs of the importer image.

use kubelet::controller;
use kubelet::network::Network;
use kubelet::pod;
use kubelet::volumes::{Claim, Objects};
use testkit::cluster::Cluster;
use testkit::cluster::cdi::CDI_NAMESPACE;
use testkit::cluster::crons::CRON_ACCOUNT;
use testkit::fail::OrFail;
use testkit::oci::{Compression, Image};
use testkit::tools;

use super::scene::{CLAIM_BYTES, SERVER, Scene, disk_image, url, with_claim};

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn the_size_of_a_disk_is_detected() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let claim = Claim::filesystem(CLAIM_BYTES);
    let network = Network::new();
    let detect = || {
        let pod = controller::size_detection(&claim);
        pod::start(&network, &pod, &with_claim(&claim, [])).wait("size-detection")
    };
    // The exit code for an invalid path (Appendix B).
    let ended = detect();
    assert_eq!(ended.code, 3, "{}", ended.log);
    for file in [&image.qcow2, &image.raw] {
        std::fs::copy(file, claim.disk()).or_fail("a disk");
        let ended = detect();
        let size = image.virtual_size.to_string();
        assert_eq!((ended.code, ended.message), (0, size), "{}", ended.log);
    }
}

#[test]
#[ignore = "server: Kubernetes, docker-registry"]
fn a_poller_records_the_digest_of_an_image_in_a_registry() {
    let cluster = Cluster::start();
    cluster.install_data_import_crons();
    cluster.create_data_import_cron("default", "news", None);
    let scene = Scene::new();
    let image = Image::of_disk(b"a disk", Compression::Gzip);
    let registry = scene.serve_images(false, &[("disk:1", image)]);
    scene.network.open(cluster.address());
    let account = vec![
        ("token", cluster.service_account_token(CDI_NAMESPACE, CRON_ACCOUNT)),
        ("ca.crt", std::fs::read_to_string(cluster.ca_file()).or_fail("an authority")),
        ("namespace", CDI_NAMESPACE.to_owned()),
    ];
    let objects = Objects { files: [("account", account)].into(), ..Objects::default() };
    let url = url("docker", registry.address(), "disk:1");
    let api = (SERVER.0, cluster.address().port());
    let env = [("INSECURE_TLS", "true")];
    let pod = controller::poller("news", &url, "account", api, &env, &[SERVER]);
    let ended = pod::start(&scene.network, &pod, &objects).wait("cdi-source-update-poller");
    assert_eq!(ended.code, 0, "{}", ended.log);
    let words =
        ["inspect", "--tls-verify=false", "--format", "{{.Digest}}", &registry.reference("disk:1")];
    let digest = tools::run("skopeo", words);
    let annotation = |name| cluster.cron_annotation("default", "news", name);
    assert_eq!(annotation("storage.import.sourceDesiredDigest").as_deref(), Some(digest.trim()));
    assert!(annotation("storage.import.lastCronTime").is_some());
}
