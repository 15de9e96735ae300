//! The sources of CDI's tests, imported to files and to devices, with and without preallocation.

use std::fs;

use kubelet::controller::Import;
use kubelet::images;
use kubelet::pod;
use kubelet::volumes::Claim;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::objects::{ACCESS_KEY, BUCKET, Kind, SECRET_KEY, Store};
use testkit::oci::{self, Compression};

use super::scene::{
    CLAIM_BYTES, COMPLETE, MIB, SERVER, Scene, TRUSTED, assert_succeeded, http, url, with_claim,
};

/// A tar, which becomes a disk unless it is imported as an archive.
fn tar() -> Vec<u8> {
    oci::tar(&[("one.txt", &disk::content(1, MIB)), ("folder/two.txt", b"2")])
}

#[test]
#[ignore = "server: nginx"]
fn every_kind_of_object_is_imported_over_https_to_files_and_devices() {
    let (scene, _) = Scene::with_image();
    scene.write("disk.iso", fs::read(disk::iso()).or_fail("an ISO image"));
    scene.write("disk.tar", tar());
    let nginx = scene.serve(true, "root .;");
    for (name, expected) in [
        ("image.qcow2", "image.raw"),
        ("image.raw", "image.raw"),
        ("disk.iso", "disk.iso"),
        ("disk.tar", "disk.tar"),
    ] {
        let url = url("https", nginx.address(), name);
        let env = &http(&url);
        let import = Import { env, mounts: &TRUSTED, hosts: &[SERVER], ..Import::default() };
        scene.import_to_each(&import, expected, &[]);
    }
}

#[test]
#[ignore = "server: docker-registry"]
fn container_disks_are_imported_to_files_and_devices() {
    let (scene, image) = Scene::with_image();
    scene.write("disk.tar", tar());
    let qcow2 = fs::read(&image.qcow2).or_fail("the image");
    let mut labelled = oci::Image::of_disk(&qcow2, Compression::Gzip);
    labelled.env.push("INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small");
    let tar = oci::Image::of_disk(&tar(), Compression::Gzip);
    let registry = scene.serve_images(false, &[("qcow2:1", labelled), ("tar:1", tar)]);
    let label = [("instancetype.kubevirt.io/default-instancetype", "u1.small")];
    // A disk may have exactly the requested size.
    let exact = image.virtual_size.to_string();
    for (name, size, expected, labels) in [
        ("qcow2:1", exact, "image.raw", &label[..]),
        ("tar:1", CLAIM_BYTES.to_string(), "disk.tar", &[]),
    ] {
        let url = url("docker", registry.address(), name);
        let env = &[
            ("IMPORTER_SOURCE", "registry"),
            ("IMPORTER_ENDPOINT", url.as_str()),
            ("IMPORTER_IMAGE_SIZE", &size),
            ("INSECURE_TLS", "true"),
        ];
        let import = Import { env, hosts: &[SERVER], ..Import::default() };
        scene.import_to_each(&import, expected, labels);
    }
}

#[test]
#[ignore = "server: object stores"]
fn an_object_of_a_store_is_imported_to_files_and_devices() {
    let (mut scene, image) = Scene::with_image();
    let store = Store::start(Kind::S3s);
    store.put("disks/image.qcow2", &fs::read(&image.qcow2).or_fail("the image"));
    scene.network.open(store.address());
    let keys = vec![("accessKeyId", ACCESS_KEY.to_owned()), ("secretKey", SECRET_KEY.to_owned())];
    scene.objects.push(("keys", keys));
    let url = url("http", store.address(), &format!("{BUCKET}/disks/image.qcow2"));
    let env = &[("IMPORTER_SOURCE", "s3"), ("IMPORTER_ENDPOINT", url.as_str())];
    let import = Import { env, secret: Some("keys"), hosts: &[SERVER], ..Import::default() };
    scene.import_to_each(&import, "image.raw", &[]);
}

/// Loads a user's image with the scene's disk and this variable into podman's storage. The image
/// contains nothing else: no shell, no library, no user.
fn user_image(scene: &Scene, variable: &'static str) -> String {
    let path = |name| scene.folder.path().join(name);
    let content = fs::read(path("image.qcow2")).or_fail("the image");
    let tar = oci::tar(&[("disk/fedora 40.qcow2", &content)]);
    let mut image = oci::Image::new(vec![(tar, Compression::None)]);
    image.env.push(variable);
    oci::write_layout(&path("layout"), &[image]);
    oci::archive_layout(&path("layout"), &path("image.oci.tar"));
    images::load(&path("image.oci.tar"))
}

#[test]
#[ignore = "server: podman"]
fn an_image_pulled_by_the_node_is_imported() {
    let (scene, _) = Scene::with_image();
    let image = user_image(&scene, "KUBEVIRT_IO_X=1");
    let env = &[
        ("IMPORTER_SOURCE", "http"),
        ("IMPORTER_ENDPOINT", "http://localhost:8100/disk.img"),
        ("IMPORTER_PULL_METHOD", "node"),
        ("IMPORTER_READY_FILE", "/shared/ready"),
        ("IMPORTER_DONE_FILE", "/shared/done"),
    ];
    let import = Import { env, node_pull: Some(&image), ..Import::default() };
    scene.import_to_each(&import, "image.raw", &[("kubevirt.io/x", "1")]);
}

#[test]
#[ignore = "server: podman"]
fn an_image_mounted_by_the_node_is_imported() {
    let (scene, _) = Scene::with_image();
    let image = user_image(&scene, "KUBEVIRT_IO_OS=linux");
    let env = &[
        ("IMPORTER_SOURCE", "registry"),
        // The server does not exist: the kubelet has pulled the image.
        ("IMPORTER_ENDPOINT", "docker://registry.invalid/fedora:40"),
        ("IMPORTER_PULL_METHOD", "node"),
    ];
    let import = Import { env, image_volume: Some(&image), ..Import::default() };
    scene.import_to_each(&import, "image.raw", &[("kubevirt.io/os", "linux")]);
}

#[test]
#[ignore = "server: nginx"]
fn an_archive_is_unpacked_to_files() {
    let scene = Scene::new();
    scene.write("files.tar", tar());
    let nginx = scene.serve(false, "root .;");
    let url = url("http", nginx.address(), "files.tar");
    let (claim, scratch) = (Claim::filesystem(CLAIM_BYTES), Claim::filesystem(CLAIM_BYTES));
    let import = Import {
        env: &[&http(&url)[..], &[("IMPORTER_CONTENTTYPE", "archive")]].concat(),
        hosts: &[SERVER],
        // The controller makes a scratch claim for every archive.
        scratch: Some("scratch"),
        ..Import::default()
    };
    let pod = kubelet::controller::importer(&claim, &import);
    let mut objects = with_claim(&claim, []);
    objects.claims.insert("scratch", &scratch);
    let ended = pod::start(&scene.network, &pod, &objects).wait("importer");
    assert_succeeded(&ended.import(), &ended, COMPLETE);
    assert_eq!(claim.names(), ["folder", "one.txt"]);
    assert_eq!(scratch.names(), [""; 0]);
}
