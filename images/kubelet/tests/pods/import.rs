//! Import pods: every source that needs no hypervisor, imported to ext4 and to a device.

use kubelet::controller::{self, Import};
use kubelet::network::Network;
use kubelet::pod;
use kubelet::state::Verdict;
use kubelet::volumes::Claim;
use testkit::certs::Authority;
use testkit::docker_registry::{DockerRegistry, Setup};
use testkit::fail::OrFail;
use testkit::images::Image;
use testkit::objects::{ACCESS_KEY, BUCKET, Kind, SECRET_KEY, Store};
use testkit::oci;

use super::scene::{
    CLAIM_BYTES, Files, SERVER, assert_allocation, assert_disk, assert_succeeded, claims,
    claims_and_preallocation, disk_image, http, import, serve, serve_plainly, url, with_claim,
};

const COMPLETE: &str = "Import Complete";

/// Imports to a claim of each kind and compares the disks.
fn import_to_each(network: &Network, image: &Image, pod: &Import<'_>, files: &[Files]) {
    for claim in claims() {
        let ended = import(network, &claim, pod, files);
        assert_succeeded(&ended.import(), &ended, COMPLETE);
        assert_disk(&claim, &image.raw, image.virtual_size);
    }
}

#[test]
#[ignore = "server: nginx"]
fn an_image_is_imported_over_https_with_a_private_authority() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let network = Network::new();
    let authority = Authority::new().or_fail("an authority");
    let nginx = serve(&network, folder.path(), &authority);
    let url = url("https", nginx.address(), "image.qcow2");
    let pod = Import {
        env: &http(&url),
        certificates: Some("ca"),
        hosts: &[SERVER],
        ..Import::default()
    };
    import_to_each(&network, &image, &pod, &[("ca", vec![("ca.pem", authority.pem())])]);
}

#[test]
#[ignore = "server: docker-registry"]
fn an_image_is_imported_from_a_registry() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let content = std::fs::read(&image.qcow2).or_fail("the image");
    let mut container_disk = oci::Image::of_disk(&content, oci::Compression::Gzip);
    container_disk.env.push("INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small");
    let registry = DockerRegistry::start_with(Setup::default(), &[("disk:1", &[container_disk])]);
    let network = Network::new();
    network.open(registry.address());
    let url = url("docker", registry.address(), "disk:1");
    for claim in claims() {
        let pod = Import {
            env: &[
                ("IMPORTER_SOURCE", "registry"),
                ("IMPORTER_ENDPOINT", &url),
                ("INSECURE_TLS", "true"),
            ],
            hosts: &[SERVER],
            ..Import::default()
        };
        let ended = import(&network, &claim, &pod, &[]);
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
#[ignore = "server: object stores"]
fn an_image_is_imported_from_an_object_store() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let store = Store::start(Kind::S3s);
    store.put("disks/image.qcow2", &std::fs::read(&image.qcow2).or_fail("the image"));
    let network = Network::new();
    network.open(store.address());
    let url = format!("http://{}:{}/{BUCKET}/disks/image.qcow2", SERVER.0, store.address().port());
    let pod = Import {
        env: &[("IMPORTER_SOURCE", "s3"), ("IMPORTER_ENDPOINT", &url)],
        secret: Some("keys"),
        hosts: &[SERVER],
        ..Import::default()
    };
    let keys = vec![("accessKeyId", ACCESS_KEY.to_owned()), ("secretKey", SECRET_KEY.to_owned())];
    import_to_each(&network, &image, &pod, &[("keys", keys)]);
}

#[test]
#[ignore = "server: podman"]
fn an_image_pulled_by_the_node_is_imported() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let content = std::fs::read(&image.qcow2).or_fail("the image");
    // The user's image contains nothing else: no shell, no library, no user.
    let tar = oci::tar(&[("disk/fedora 40.qcow2", &content)]);
    let mut container_disk = oci::Image::new(vec![(tar, oci::Compression::None)]);
    container_disk.env.push("KUBEVIRT_IO_X=1");
    let user_image = scratch_image(folder.path(), &container_disk);
    let network = Network::new();
    for (claim, preallocate) in claims_and_preallocation() {
        let word = if preallocate { "true" } else { "false" };
        let import = Import {
            env: &[
                ("IMPORTER_SOURCE", "http"),
                ("IMPORTER_ENDPOINT", "http://localhost:8100/disk.img"),
                ("IMPORTER_PULL_METHOD", "node"),
                ("IMPORTER_READY_FILE", "/shared/ready"),
                ("IMPORTER_DONE_FILE", "/shared/done"),
                ("PREALLOCATION", word),
            ],
            node_pull: Some(&user_image),
            ..Import::default()
        };
        let mut running =
            pod::start(&network, &controller::importer(&claim, &import), &with_claim(&claim));
        let ended = running.wait("importer");
        let expected = Verdict::Succeeded {
            message: COMPLETE.to_owned(),
            preallocated: preallocate,
            labels: vec![("kubevirt.io/x".to_owned(), "1".to_owned())],
        };
        assert_eq!(ended.import(), expected, "{}", ended.log);
        let server = running.wait("server");
        assert_eq!(server.code, 0, "{}", server.log);
        assert_disk(&claim, &image.raw, image.virtual_size);
        assert_allocation(&claim, preallocate);
    }
}

#[test]
#[ignore = "server: podman"]
fn an_image_mounted_by_the_node_is_imported() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let content = std::fs::read(&image.qcow2).or_fail("the image");
    let tar = oci::tar(&[("disk/fedora 40.qcow2", &content)]);
    let mut container_disk = oci::Image::new(vec![(tar, oci::Compression::None)]);
    container_disk.env.extend(["KUBEVIRT_IO_X=a=B", "KUBEVIRT_IO_OS=linux"]);
    let user_image = scratch_image(folder.path(), &container_disk);
    let network = Network::new();
    for claim in claims() {
        let import = Import {
            env: &[
                ("IMPORTER_SOURCE", "registry"),
                // The server does not exist: the kubelet has pulled the image.
                ("IMPORTER_ENDPOINT", "docker://registry.invalid/fedora:40"),
                ("IMPORTER_PULL_METHOD", "node"),
            ],
            image_volume: Some(&user_image),
            ..Import::default()
        };
        let mut running =
            pod::start(&network, &controller::importer(&claim, &import), &with_claim(&claim));
        let ended = running.wait("importer");
        let expected = Verdict::Succeeded {
            message: COMPLETE.to_owned(),
            preallocated: false,
            labels: vec![("kubevirt.io/os".to_owned(), "linux".to_owned())],
        };
        assert_eq!(ended.import(), expected, "{}", ended.log);
        assert_disk(&claim, &image.raw, image.virtual_size);
    }
}

/// Loads the image into podman's storage and returns its ID.
fn scratch_image(folder: &std::path::Path, image: &oci::Image) -> String {
    let layout = folder.join("layout");
    oci::write_layout(&layout, std::slice::from_ref(image));
    let archive = folder.join("image.oci.tar");
    oci::archive_layout(&layout, &archive);
    kubelet::images::load(&archive)
}

#[test]
#[ignore = "server: nginx"]
fn an_archive_is_unpacked_to_files() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let tar = oci::tar(&[("one.txt", b"1"), ("folder/two.txt", b"2")]);
    std::fs::write(folder.path().join("files.tar"), tar).or_fail("a tar");
    let network = Network::new();
    let nginx = serve_plainly(&network, folder.path(), "root .;");
    let url = url("http", nginx.address(), "files.tar");
    let (claim, scratch) = (Claim::filesystem(CLAIM_BYTES), Claim::filesystem(CLAIM_BYTES));
    let import = Import {
        env: &[
            ("IMPORTER_SOURCE", "http"),
            ("IMPORTER_ENDPOINT", &url),
            ("IMPORTER_CONTENTTYPE", "archive"),
        ],
        hosts: &[SERVER],
        // The controller makes a scratch claim for every archive.
        scratch: Some("scratch"),
        ..Import::default()
    };
    let mut objects = with_claim(&claim);
    objects.claims.insert("scratch", &scratch);
    let ended =
        pod::start(&network, &controller::importer(&claim, &import), &objects).wait("importer");
    assert_succeeded(&ended.import(), &ended, COMPLETE);
    assert_eq!(claim.names(), ["folder", "one.txt"]);
    assert_eq!(scratch.names(), [""; 0]);
}
