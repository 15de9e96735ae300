//! The pods of Forklift's populators, with the real Keystone and Glance, and with an engine of
//! oVirt over TLS.

use kubelet::controller::OWNER;
use kubelet::pod;
use kubelet::populators::{CONTAINER, SECRET, populator};
use testkit::fail::OrFail;
use testkit::gateway::{Gateway, Plan};
use testkit::images::Image;
use testkit::openstack::real::{self, Cloud};
use testkit::ovirt::{self, DISK_ID, Script};

use super::imageio::{raw, start_engine};
use super::scene::{MIB, SERVER, Scene, assert_disk, claims, url, with_claim};

/// Fills claims of each kind while the progress is scraped, and compares the disks.
fn fill(
    scene: &Scene,
    (program, metric): (&str, &str),
    flags: &[&str],
    secret: &[(&'static str, String)],
    expected: &Image,
) {
    for claim in claims() {
        let objects = with_claim(&claim, [(SECRET, secret.to_vec())]);
        let pod = populator(program, &claim, flags, &[SERVER]);
        let mut running = pod::start(&scene.network, &pod, &objects);
        let percent = running.wait_for_progress(metric, OWNER, 10.0);
        assert!(percent <= 100.0, "{percent}");
        let ended = running.wait(CONTAINER);
        assert_eq!((ended.code, ended.out_of_memory), (0, false), "{}", ended.log);
        for (key, value) in secret {
            assert!(*key != "password" || !ended.log.contains(value), "{}", ended.log);
        }
        assert_disk(&claim, &expected.raw, expected.virtual_size);
    }
}

#[test]
#[ignore = "server: Keystone and Glance"]
fn an_image_of_openstack_is_imported_to_files_and_devices() {
    let (scene, image) = Scene::with_image();
    let cloud = Cloud::get();
    let id = cloud.add_image("qcow2", &std::fs::read(&image.qcow2).or_fail("the image"));
    let glance = cloud.images().trim_start_matches("http://");
    let plan = Plan { bytes_per_second: Some(MIB / 2), ..Plan::default() };
    let gateway = Gateway::start(glance.parse().or_fail(glance), plan).or_fail("a gateway");
    let keystone = cloud.identity().trim_start_matches("http://").trim_end_matches("/v3");
    let keystone = keystone.parse().or_fail(keystone);
    scene.network.open(keystone);
    scene.network.open(gateway.address());
    let (endpoint, id) = (url("http", keystone, "v3"), format!("--image-id={id}"));
    let secret = [
        ("authType", "password".to_owned()),
        ("username", real::USER.to_owned()),
        ("password", real::PASSWORD.to_owned()),
        ("userDomainName", real::DOMAIN.to_owned()),
        ("projectName", real::USER.to_owned()),
        ("projectDomainName", real::DOMAIN.to_owned()),
        ("regionName", cloud.region(&url("http", gateway.address(), ""))),
    ];
    let names = ("openstack-populator", "kubevirt_cdi_openstack_populator_progress_total");
    fill(&scene, names, &[&format!("--endpoint={endpoint}"), &id], &secret, &image);
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn a_disk_of_ovirt_is_imported_to_files_and_devices() {
    let (scene, image) = Scene::with_image();
    fill_from_ovirt(&scene, &image);
}

/// Fills claims of each kind with a disk of oVirt.
pub(crate) fn fill_from_ovirt(scene: &Scene, image: &Image) {
    let script = Script { rate: Some(MIB), ..Script::new(raw(&image.raw)) };
    let (engine, address) = start_engine(scene, script);
    let flags = [
        &format!("--engine-url={address}"),
        &format!("--disk-id={DISK_ID}"),
        "--cr-name=populator",
        "--cr-namespace=default",
    ];
    let secret = [
        ("user", ovirt::USER.to_owned()),
        ("password", ovirt::PASSWORD.to_owned()),
        ("cacert", scene.authority.pem()),
        ("insecureSkipVerify", "false".to_owned()),
    ];
    let names = ("ovirt-populator", "kubevirt_cdi_ovirt_progress_total");
    fill(scene, names, &flags, &secret, image);
    assert!(engine.is_logged_out(), "{:?}", engine.calls());
}
