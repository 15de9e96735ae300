//! Pods as each version of CDI makes them. `ci/test full` takes one version by chance for each kind
//! of pod, `--all` all versions.

use kubelet::controller::Import;
use kubelet::network::Network;
use kubelet::versions::CdiVersion;
use kubelet::volumes::Claim;
use testkit::cases;
use testkit::disk;
use testkit::fail::OrFail;

use super::clone::{clone_in, source};
use super::populators::fill_from_ovirt;
use super::scene::{
    CLAIM_BYTES, MIB, SERVER, Scene, assert_disk, assert_succeeded, claims, disk_image, http, url,
};
use super::upload::{self, Upload};

/// Runs `check` with a network of each version.
#[allow(clippy::print_stderr, reason = "the version, for the log of a failure")]
fn with_each(check: impl Fn(Network)) {
    for version in cases::sample(CdiVersion::all(), 1) {
        eprintln!("{version:?}");
        check(Network::with_version(Some(version)));
    }
}

#[test]
#[ignore = "server: nginx"]
fn an_image_is_imported_or_its_failure_reported_in_pods_of_each_version() {
    with_each(|network| {
        let (mut scene, _image) = Scene::with_image();
        scene.network = network;
        let nginx = scene.serve(false, "root .;");
        let import = |claim: &Claim, path: &str| {
            let url = url("http", nginx.address(), path);
            scene.import(claim, &Import { env: &http(&url), hosts: &[SERVER], ..Import::default() })
        };
        for claim in claims() {
            let ended = import(&claim, "image.qcow2");
            scene.assert_imported(&claim, &ended, "image.raw", false, &[]);
        }
        let ended = import(&Claim::filesystem(CLAIM_BYTES), "absent");
        let message = "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found";
        assert_eq!((ended.code, ended.message.as_str()), (1, message), "{}", ended.log);
    });
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn an_image_is_uploaded_to_pods_of_each_version() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let content = std::fs::read(&image.qcow2).or_fail("the image");
    with_each(|network| {
        let mut upload = Upload::new();
        upload.network = network;
        for claim in claims() {
            let ended = upload.send(&claim, &[], "upload", &content);
            assert_succeeded(&ended.upload(), &ended, upload::COMPLETE);
            assert_disk(&claim, &image.raw, image.virtual_size);
        }
    });
}

#[test]
#[ignore = "tools: mkfs.ext4"]
fn a_volume_is_cloned_between_pods_of_each_version() {
    with_each(|network| {
        let source = source(false, &disk::content(5, 24 * MIB));
        let target = Claim::filesystem(CLAIM_BYTES);
        clone_in(&network, &source, &target, false);
        assert_disk(&target, &source.disk(), 24 * MIB);
    });
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn a_disk_is_populated_and_scraped_in_pods_of_each_version() {
    with_each(|network| {
        let (mut scene, image) = Scene::with_image();
        scene.network = network;
        fill_from_ovirt(&scene, &image);
    });
}
