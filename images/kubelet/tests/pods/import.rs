//! Import pods: every source that a cluster without a hypervisor has, to ext4 and to a device.

use kubelet::controller::{self, Import, OWNER};
use kubelet::network::Network;
use kubelet::pod;
use kubelet::state::Verdict;
use kubelet::volumes::{Claim, Objects};
use testkit::certs::Authority;
use testkit::disk;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::images::Image;
use testkit::objects::{ACCESS_KEY, BUCKET, Kind, SECRET_KEY, Store};
use testkit::oci;

use super::scene::{
    CLAIM_BYTES, MIB, SERVER, assert_disk, assert_succeeded, claims, disk_image, serve, with_claim,
};

const COMPLETE: &str = "Import Complete";

/// The metric of importers (contract §0.7).
const METRIC: &str = "kubevirt_cdi_import_progress_total";

/// Imports to a claim of each kind and compares the disk.
fn import(
    network: &Network,
    image: &Image,
    import: &Import<'_>,
    files: &[(&'static str, Vec<(&'static str, String)>)],
) {
    for claim in claims() {
        let objects = Objects {
            files: files.iter().cloned().collect(),
            ..with_claim(&claim)
        };
        let ended = pod::start(network, &controller::importer(&claim, import), &objects).wait("importer");
        assert_succeeded(&ended.import(), &ended, COMPLETE);
        assert_disk(&claim, &image.raw, image.virtual_size);
    }
}

#[test]
fn an_image_comes_over_https_with_a_private_authority() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let network = Network::new();
    let authority = Authority::new().or_fail("an authority");
    let nginx = serve(&network, folder.path(), &authority);
    let url = format!("https://{}:{}/image.qcow2", SERVER.0, nginx.address().port());
    let pod = Import {
        env: &[("IMPORTER_SOURCE", "http"), ("IMPORTER_ENDPOINT", &url)],
        certificates: Some("ca"),
        hosts: &[SERVER],
        ..Import::default()
    };
    import(
        &network,
        &image,
        &pod,
        &[("ca", vec![("ca.pem", authority.pem())])],
    );
}

#[test]
fn progress_is_scraped_while_an_image_comes() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let content = disk::content(7, 24 * MIB);
    std::fs::write(folder.path().join("disk.img"), &content).or_fail("the disk");
    let network = Network::new();
    let authority = Authority::new().or_fail("an authority");
    let (certificate, key) = authority.leaf_pem().or_fail("a certificate");
    std::fs::write(folder.path().join("server.crt"), certificate).or_fail("a certificate");
    std::fs::write(folder.path().join("server.key"), key).or_fail("a key");
    let nginx = testkit::nginx::Nginx::start(folder.path(), true, "root .; limit_rate 6m;");
    network.open(nginx.address());
    let url = format!("https://{}:{}/disk.img", SERVER.0, nginx.address().port());
    let claim = Claim::filesystem(CLAIM_BYTES);
    let import = Import {
        env: &[
            ("IMPORTER_SOURCE", "http"),
            ("IMPORTER_ENDPOINT", &url),
            ("INSECURE_TLS", "true"),
        ],
        hosts: &[SERVER],
        ..Import::default()
    };
    let mut running = pod::start(
        &network,
        &controller::importer(&claim, &import),
        &with_claim(&claim),
    );
    let percent = running.wait_for_progress(METRIC, OWNER);
    assert!((0.0..100.0).contains(&percent), "{percent}");
    let ended = running.wait("importer");
    assert_succeeded(&ended.import(), &ended, COMPLETE);
    assert_disk(&claim, &folder.path().join("disk.img"), 24 * MIB);
}

#[test]
fn an_image_comes_from_a_registry() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let content = std::fs::read(&image.qcow2).or_fail("the image");
    let mut container_disk = oci::Image::of_disk(&content, oci::Compression::Gzip);
    container_disk
        .env
        .push("INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small");
    let registry = DockerRegistry::start_with(Setup::default(), &[("disk:1", &[container_disk])]);
    let network = Network::new();
    network.open(registry.address());
    let url = format!("docker://{}:{}/disk:1", SERVER.0, registry.address().port());
    for claim in claims() {
        let import = Import {
            env: &[
                ("IMPORTER_SOURCE", "registry"),
                ("IMPORTER_ENDPOINT", &url),
                ("INSECURE_TLS", "true"),
            ],
            hosts: &[SERVER],
            ..Import::default()
        };
        let ended = pod::start(
            &network,
            &controller::importer(&claim, &import),
            &with_claim(&claim),
        )
        .wait("importer");
        let expected = Verdict::Succeeded {
            message: COMPLETE.to_owned(),
            preallocated: false,
            labels: vec![(
                "instancetype.kubevirt.io/default-instancetype".to_owned(),
                "u1.small".to_owned(),
            )],
        };
        assert_eq!(ended.import(), expected, "{}", ended.log);
        assert_disk(&claim, &image.raw, image.virtual_size);
    }
}

#[test]
fn an_image_comes_from_an_object_store() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let store = Store::start(Kind::S3s);
    store.put(
        "disks/image.qcow2",
        &std::fs::read(&image.qcow2).or_fail("the image"),
    );
    let network = Network::new();
    network.open(store.address());
    let url = format!(
        "http://{}:{}/{BUCKET}/disks/image.qcow2",
        SERVER.0,
        store.address().port()
    );
    let pod = Import {
        env: &[("IMPORTER_SOURCE", "s3"), ("IMPORTER_ENDPOINT", &url)],
        secret: Some("keys"),
        hosts: &[SERVER],
        ..Import::default()
    };
    let keys = vec![
        ("accessKeyId", ACCESS_KEY.to_owned()),
        ("secretKey", SECRET_KEY.to_owned()),
    ];
    import(&network, &image, &pod, &[("keys", keys)]);
}

#[test]
fn a_node_pulls_the_image() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let content = std::fs::read(&image.qcow2).or_fail("the image");
    // Nothing else is in it: no shell, no library, no user.
    let tar = oci::tar(&[("disk/fedora 40.qcow2", &content)]);
    let mut container_disk = oci::Image::new(vec![(tar, oci::Compression::None)]);
    container_disk.env.push("KUBEVIRT_IO_X=1");
    let user_image = scratch_image(folder.path(), &container_disk);
    let network = Network::new();
    for claim in claims() {
        let import = Import {
            env: &[
                ("IMPORTER_SOURCE", "http"),
                ("IMPORTER_ENDPOINT", "http://localhost:8100/disk.img"),
                ("IMPORTER_PULL_METHOD", "node"),
                ("IMPORTER_READY_FILE", "/shared/ready"),
                ("IMPORTER_DONE_FILE", "/shared/done"),
            ],
            node_pull: Some(&user_image),
            ..Import::default()
        };
        let mut running = pod::start(
            &network,
            &controller::importer(&claim, &import),
            &with_claim(&claim),
        );
        let ended = running.wait("importer");
        let expected = Verdict::Succeeded {
            message: COMPLETE.to_owned(),
            preallocated: false,
            labels: vec![("kubevirt.io/x".to_owned(), "1".to_owned())],
        };
        assert_eq!(ended.import(), expected, "{}", ended.log);
        let server = running.wait("server");
        assert_eq!(server.code, 0, "{}", server.log);
        assert_disk(&claim, &image.raw, image.virtual_size);
    }
}

/// The image in podman's storage.
fn scratch_image(folder: &std::path::Path, image: &oci::Image) -> String {
    let layout = folder.join("layout");
    oci::write_layout(&layout, std::slice::from_ref(image));
    let archive = folder.join("image.oci.tar");
    oci::archive_layout(&layout, &archive);
    kubelet::images::load(&archive)
}

#[test]
fn a_blank_disk_is_all_zeros() {
    let network = Network::new();
    for preallocate in [false, true] {
        let claim = Claim::filesystem(CLAIM_BYTES);
        let import = Import {
            env: &[
                ("IMPORTER_SOURCE", "none"),
                ("PREALLOCATION", if preallocate { "true" } else { "false" }),
            ],
            ..Import::default()
        };
        let ended = pod::start(
            &network,
            &controller::importer(&claim, &import),
            &with_claim(&claim),
        )
        .wait("importer");
        let expected = Verdict::Succeeded {
            message: COMPLETE.to_owned(),
            preallocated: preallocate,
            labels: Vec::new(),
        };
        assert_eq!(ended.import(), expected, "{}", ended.log);
        let disk = std::fs::read(claim.disk()).or_fail("the disk");
        assert!(disk.len() as u64 > CLAIM_BYTES / 2 && disk.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn an_archive_becomes_files() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let tar = oci::tar(&[("one.txt", b"1"), ("folder/two.txt", b"2")]);
    std::fs::write(folder.path().join("files.tar"), tar).or_fail("a tar");
    let network = Network::new();
    let nginx = testkit::nginx::Nginx::start(folder.path(), false, "root .;");
    network.open(nginx.address());
    let url = format!("http://{}:{}/files.tar", SERVER.0, nginx.address().port());
    let (claim, scratch) = (Claim::filesystem(CLAIM_BYTES), Claim::filesystem(CLAIM_BYTES));
    let import = Import {
        env: &[
            ("IMPORTER_SOURCE", "http"),
            ("IMPORTER_ENDPOINT", &url),
            ("IMPORTER_CONTENTTYPE", "archive"),
        ],
        hosts: &[SERVER],
        // The controller makes one for every archive.
        scratch: Some("scratch"),
        ..Import::default()
    };
    let mut objects = with_claim(&claim);
    objects.claims.insert("scratch", &scratch);
    let ended = pod::start(&network, &controller::importer(&claim, &import), &objects).wait("importer");
    assert_succeeded(&ended.import(), &ended, COMPLETE);
    assert_eq!(claim.names(), ["folder", "one.txt"]);
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn a_wrong_checksum_is_never_tried_again() {
    let folder = tempfile::tempdir().or_fail("a folder");
    std::fs::write(folder.path().join("disk.img"), disk::content(3, MIB)).or_fail("the disk");
    let network = Network::new();
    let nginx = testkit::nginx::Nginx::start(folder.path(), false, "root .;");
    network.open(nginx.address());
    let url = format!("http://{}:{}/disk.img", SERVER.0, nginx.address().port());
    let claim = Claim::filesystem(CLAIM_BYTES);
    let import = Import {
        env: &[
            ("IMPORTER_SOURCE", "http"),
            ("IMPORTER_ENDPOINT", &url),
            ("IMPORTER_CHECKSUM", "md5:00000000000000000000000000000000"),
        ],
        hosts: &[SERVER],
        ..Import::default()
    };
    let ended = pod::start(
        &network,
        &controller::importer(&claim, &import),
        &with_claim(&claim),
    )
    .wait("importer");
    let verdict = ended.import();
    let Verdict::ChecksumMismatch(message) = &verdict else {
        panic!("{verdict:?}: {}", ended.log)
    };
    assert!(message.contains("checksum validation failed"), "{message}");
    assert_eq!(claim.names(), [""; 0]);
}
