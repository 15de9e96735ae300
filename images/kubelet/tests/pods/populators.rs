//! The pods of Forklift's populators, with the real Keystone and Glance, and with an engine of
//! oVirt over TLS.

use std::path::Path;

use kubelet::controller::OWNER;
use kubelet::network::Network;
use kubelet::pod;
use kubelet::populators::{CONTAINER, SECRET, populator};
use kubelet::volumes::{Claim, Objects};
use testkit::certs::Authority;
use testkit::fail::OrFail;
use testkit::gateway::{Gateway, Plan};
use testkit::openstack::real::{self, Cloud};
use testkit::ovirt::{self, Contents, DISK_ID, Engine, Script};

use super::scene::{MIB, SERVER, assert_disk, claims, disk_image, url, with_claim};

/// Fills the claim while the progress is scraped, and compares the disk.
#[track_caller]
fn fill(
    network: &Network,
    claim: &Claim,
    (program, metric): (&str, &str),
    flags: &[&str],
    secret: &[(&'static str, String)],
    (expected, bytes): (&Path, u64),
) {
    let objects = Objects { files: [(SECRET, secret.to_vec())].into(), ..with_claim(claim) };
    let mut running = pod::start(network, &populator(program, claim, flags, &[SERVER]), &objects);
    let percent = running.wait_for_progress(metric, OWNER, 10.0);
    assert!(percent <= 100.0, "{percent}");
    let ended = running.wait(CONTAINER);
    assert_eq!((ended.code, ended.out_of_memory), (0, false), "{}", ended.log);
    for (key, value) in secret {
        assert!(*key != "password" || !ended.log.contains(value), "{}", ended.log);
    }
    assert_disk(claim, expected, bytes);
}

#[test]
#[ignore = "server: Keystone and Glance"]
fn an_image_of_openstack_is_imported_to_files_and_devices() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let cloud = Cloud::get();
    let id = cloud.add_image("qcow2", &std::fs::read(&image.qcow2).or_fail("the image"));
    let glance = cloud.images().trim_start_matches("http://");
    let plan = Plan { bytes_per_second: Some(MIB / 2), ..Plan::default() };
    let gateway = Gateway::start(glance.parse().or_fail(glance), plan).or_fail("a gateway");
    let keystone = cloud.identity().trim_start_matches("http://").trim_end_matches("/v3");
    let keystone = keystone.parse().or_fail(keystone);
    let network = Network::new();
    network.open(keystone);
    network.open(gateway.address());
    let flags = [format!("--endpoint={}", url("http", keystone, "v3")), format!("--image-id={id}")];
    let secret = [
        ("authType", "password".to_owned()),
        ("username", real::USER.to_owned()),
        ("password", real::PASSWORD.to_owned()),
        ("userDomainName", real::DOMAIN.to_owned()),
        ("projectName", real::USER.to_owned()),
        ("projectDomainName", real::DOMAIN.to_owned()),
        ("regionName", cloud.region(&url("http", gateway.address(), ""))),
    ];
    for claim in claims() {
        fill(
            &network,
            &claim,
            ("openstack-populator", "kubevirt_cdi_openstack_populator_progress_total"),
            &flags.each_ref().map(String::as_str),
            &secret,
            (&image.raw, image.virtual_size),
        );
    }
}

#[test]
#[ignore = "tools: mkfs.ext4, qemu-img"]
fn a_disk_of_ovirt_is_imported_to_files_and_devices() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let image = disk_image(folder.path());
    let authority = Authority::new().or_fail("an authority");
    let script = Script {
        host: Some(SERVER.0.to_owned()),
        rate: Some(MIB),
        ..Script::new(Contents {
            raw: std::fs::read(&image.raw).or_fail("the disk").into(),
            ..Contents::default()
        })
    };
    let engine = Engine::start_tls(script, authority.server_config().or_fail("a server"));
    let network = Network::new();
    for address in engine.addresses() {
        network.open(address);
    }
    let address = engine.api_url().replace("127.0.0.1", SERVER.0);
    let flags = [
        format!("--engine-url={address}"),
        format!("--disk-id={DISK_ID}"),
        "--cr-name=populator".to_owned(),
        "--cr-namespace=default".to_owned(),
    ];
    let secret = [
        ("user", ovirt::USER.to_owned()),
        ("password", ovirt::PASSWORD.to_owned()),
        ("cacert", authority.pem()),
        ("insecureSkipVerify", "false".to_owned()),
    ];
    for claim in claims() {
        fill(
            &network,
            &claim,
            ("ovirt-populator", "kubevirt_cdi_ovirt_progress_total"),
            &flags.each_ref().map(String::as_str),
            &secret,
            (&image.raw, image.virtual_size),
        );
        assert!(engine.is_logged_out(), "{:?}", engine.calls());
    }
}
