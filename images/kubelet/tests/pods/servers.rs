//! Servers that are slow, lose an object, or lack parts of HTTP.

use kubelet::controller::{self, Import, OWNER};
use kubelet::network::Network;
use kubelet::pod;
use kubelet::volumes::Claim;
use testkit::certs::Authority;
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::images::{Content, Spec};
use testkit::nginx::Nginx;
use testkit::oci;
use testkit::origin::{Fault, Origin, Script};
use testkit::tools;

use super::scene::{
    CLAIM_BYTES, MIB, SERVER, assert_disk, assert_succeeded, disk_image, http, import,
    serve_plainly, url, with_claim,
};

const COMPLETE: &str = "Import Complete";

/// The progress metric of importers (contract §0.7).
const METRIC: &str = "kubevirt_cdi_import_progress_total";

#[test]
#[ignore = "server: nginx"]
fn an_import_reports_progress_to_scrapes() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let spec = Spec { virtual_size: 12 * MIB, ..Spec::new(Content::Dense) };
    let image = spec.build(folder.path(), "image");
    let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
    let gzip = tools::filter("gzip", ["-c", "-1"], &qcow2);
    // The rate is low enough that even the compressed image takes three seconds.
    let rate = gzip.len() / 3;
    std::fs::write(folder.path().join("image.qcow2.gz"), gzip).or_fail("the image");
    let network = Network::new();
    let authority = Authority::new().or_fail("an authority");
    let (certificate, key) = authority.leaf_pem().or_fail("a certificate");
    std::fs::write(folder.path().join("server.crt"), certificate).or_fail("a certificate");
    std::fs::write(folder.path().join("server.key"), key).or_fail("a key");
    let nginx = Nginx::start(folder.path(), true, &format!("root .; limit_rate {rate};"));
    network.open(nginx.address());
    for name in ["image.raw", "image.qcow2", "image.qcow2.gz"] {
        let claim = Claim::filesystem(CLAIM_BYTES);
        let url = url("https", nginx.address(), name);
        let import = Import {
            env: &[&http(&url)[..], &[("INSECURE_TLS", "true")]].concat(),
            hosts: &[SERVER],
            ..Import::default()
        };
        let pod = controller::importer(&claim, &import);
        let mut running = pod::start(&network, &pod, &with_claim(&claim));
        let percent = running.wait_for_progress(METRIC, OWNER, 1.0);
        assert!(percent <= 99.0, "{name}: {percent}");
        let ended = running.wait("importer");
        assert_succeeded(&ended.import(), &ended, COMPLETE);
        assert_disk(&claim, &image.raw, image.virtual_size);
    }
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn an_object_that_vanishes_in_the_middle_is_imported_once_it_is_back() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let content = disk::content(3, 8 * MIB);
    let expected = folder.path().join("expected");
    std::fs::write(&expected, &content).or_fail("the disk");
    let vanishing = Origin::start(Script {
        faults: vec![Fault::CutAt(4 * MIB)],
        expires: [("/disk.img".to_owned(), (1, 404))].into(),
        ..Script::new(content.clone())
    })
    .or_fail("a server");
    let network = Network::new();
    network.open(vanishing.address());
    let claim = Claim::filesystem(CLAIM_BYTES);
    let import_from = |server: &Origin| {
        let url = url("http", server.address(), "disk.img");
        let pod = Import { env: &http(&url), hosts: &[SERVER], ..Import::default() };
        import(&network, &claim, &pod, &[])
    };
    let ended = import_from(&vanishing);
    assert_eq!(ended.code, 1, "{}", ended.log);
    let words = "Unable to process data: Unable to transfer source data to target file: failed to pull image: ";
    assert!(ended.message.starts_with(words), "{}", ended.message);
    assert!(ended.message.contains("404"), "{}", ended.message);
    assert!(vanishing.body_bytes() >= 4 * MIB, "it did not get to the middle");
    assert_eq!(claim.names(), [""; 0]);

    let back = Origin::start(Script::new(content)).or_fail("a server");
    network.open(back.address());
    let ended = import_from(&back);
    assert_succeeded(&ended.import(), &ended, COMPLETE);
    assert_disk(&claim, &expected, 8 * MIB);
}

#[test]
#[ignore = "server: nginx"]
fn servers_need_neither_head_requests_nor_ranges() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    for name in ["headless", "rangeless"] {
        std::fs::create_dir(folder.path().join(name)).or_fail(name);
        std::fs::copy(&image.qcow2, folder.path().join(name).join("image.qcow2")).or_fail(name);
    }
    let network = Network::new();
    let directives = "root .;
        location /headless/ { if ($request_method = HEAD) { return 403; } }
        location /rangeless/ { max_ranges 0; }";
    let nginx = serve_plainly(&network, folder.path(), directives);
    for name in ["headless", "rangeless"] {
        let claim = Claim::filesystem(CLAIM_BYTES);
        let url = url("http", nginx.address(), &format!("{name}/image.qcow2"));
        let pod = Import { env: &http(&url), hosts: &[SERVER], ..Import::default() };
        let ended = import(&network, &claim, &pod, &[]);
        assert_succeeded(&ended.import(), &ended, COMPLETE);
        assert_disk(&claim, &image.raw, image.virtual_size);
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn a_container_disk_may_have_exactly_the_requested_size() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
    let container_disk = oci::Image::of_disk(&qcow2, oci::Compression::Gzip);
    let registry = DockerRegistry::start_with(Setup::default(), &[("disk:1", &[container_disk])]);
    let network = Network::new();
    network.open(registry.address());
    let url = url("docker", registry.address(), "disk:1");
    let wanted = image.virtual_size.to_string();
    let pod = Import {
        env: &[
            ("IMPORTER_SOURCE", "registry"),
            ("IMPORTER_ENDPOINT", &url),
            ("IMPORTER_IMAGE_SIZE", &wanted),
            ("INSECURE_TLS", "true"),
        ],
        hosts: &[SERVER],
        ..Import::default()
    };
    let claim = Claim::filesystem(CLAIM_BYTES);
    let ended = import(&network, &claim, &pod, &[]);
    assert_succeeded(&ended.import(), &ended, COMPLETE);
    assert_disk(&claim, &image.raw, image.virtual_size);
    let size = claim.disk().metadata().or_fail("the disk").len();
    assert_eq!(size, image.virtual_size);
}
