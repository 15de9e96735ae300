//! `openstack-populator` with the real Keystone and Glance.

use testkit::gateway::{Fault, Gateway, Plan};
use testkit::openstack::real::{Cloud, DOMAIN, PASSWORD, REGION, USER};

use super::pod::{Pod, assert_fills_device, dense, images};

const ABSENT: &str = "00000000-0000-4000-8000-000000000000";

/// A pod that downloads this image from a region of the cloud, as the user with a password.
pub(crate) fn pod(image: &str, region: &str) -> Pod {
    let mut pod = anonymous(image, region);
    for (key, value) in [
        ("username", USER),
        ("password", PASSWORD),
        ("userDomainName", DOMAIN),
        ("projectName", USER),
        ("projectDomainName", DOMAIN),
    ] {
        pod.set(key, value);
    }
    pod
}

fn anonymous(image: &str, region: &str) -> Pod {
    let endpoint = format!("--endpoint={}", Cloud::get().identity());
    let image = format!("--image-id={image}");
    Pod::new("openstack-populator", &[&endpoint, &image], &[("regionName", region)])
}

/// A gateway in front of Glance, and the region whose Glance is behind it.
pub(crate) fn broken(plan: Plan) -> (Gateway, String) {
    let cloud = Cloud::get();
    let gateway =
        Gateway::start(cloud.images().trim_start_matches("http://").parse().unwrap(), plan)
            .unwrap();
    let region = cloud.region(&gateway.url(""));
    (gateway, region)
}

/// A plan whose faults hit the downloads of images.
pub(crate) fn of_files(faults: Vec<Fault>) -> Plan {
    Plan { matching: |request| request.path().ends_with("/file"), ..Plan::of(faults) }
}

#[test]
#[ignore = "server: Keystone and Glance"]
fn every_image_on_every_target_is_what_qemu_img_makes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    for (format, image, raw) in images(folder.path()) {
        let id = Cloud::get().add_image(format, &std::fs::read(&image).unwrap());
        let case = image.display().to_string();
        pod(&id, REGION).assert_fills(&raw, &case);
        assert_fills_device(pod(&id, REGION), &raw, &case);
    }
}

#[test]
#[ignore = "server: Keystone and Glance"]
fn tokens_and_application_credentials_work_like_passwords() {
    let folder = tempfile::tempdir().unwrap();
    let image = dense(folder.path());
    let cloud = Cloud::get();
    let id = cloud.add_image("qcow2", &std::fs::read(&image.qcow2).unwrap());

    let mut token = anonymous(&id, REGION);
    token.set("authType", "token");
    token.set("token", cloud.token());
    let finished = token.assert_fills(&image.raw, "token");
    assert!(!finished.stderr.contains(cloud.token()), "{}", finished.stderr);

    let mut credential = anonymous(&id, REGION);
    let (credential_id, secret) = cloud.application_credential();
    credential.set("authType", "applicationcredential");
    credential.set("applicationCredentialID", &credential_id);
    credential.set("applicationCredentialSecret", &secret);
    let finished = credential.assert_fills(&image.raw, "application credential");
    assert!(!finished.stderr.contains(&secret), "{}", finished.stderr);
}

#[test]
#[ignore = "server: Keystone and Glance"]
fn refusals_of_the_cloud_are_reported_and_leave_no_disk() {
    let id = Cloud::get().add_image("raw", &[7; 4096]);
    let mut wrong = pod(&id, REGION);
    wrong.set("password", "wrong s3cret");
    wrong.assert_refused("the user name or password");
    pod(&id, "elsewhere").assert_refused("region");
    pod(ABSENT, REGION).assert_refused(ABSENT);
    let mut odd = pod(&id, REGION);
    odd.set("authType", "kerberos");
    odd.assert_refused("unsupported authentication type");
}

#[test]
#[ignore = "server: Keystone and Glance"]
fn an_image_that_is_larger_than_the_claim_is_refused_with_both_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let image = dense(folder.path());
    let id = Cloud::get().add_image("qcow2", &std::fs::read(&image.qcow2).unwrap());
    let size = image.virtual_size;
    for too_small in [size - 1, size - 512] {
        let pod = pod(&id, REGION).with(format!("--pvc-size={too_small}"));
        pod.assert_refused(&format!("virtual image size {size} is larger"));
        pod.assert_refused(&format!("available storage {too_small}"));
    }
    let fitting = pod(&id, REGION).with(format!("--pvc-size={size}"));
    fitting.assert_fills(&image.raw, "it just fits");
}

#[test]
#[ignore = "server: Keystone and Glance"]
fn an_image_that_does_not_match_its_hash_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = dense(folder.path());
    let raw = std::fs::read(&image.raw).unwrap();
    let id = Cloud::get().add_image("raw", &raw);
    let (_gateway, region) = broken(of_files(vec![Fault::Corrupt(raw.len() as u64 / 2)]));
    pod(&id, &region).assert_refused("sha512");
}

#[test]
#[ignore = "server: Keystone and Glance"]
fn a_broken_download_resumes_where_it_broke() {
    let folder = tempfile::tempdir().unwrap();
    let image = dense(folder.path());
    let raw = std::fs::read(&image.raw).unwrap();
    let (cloud, length) = (Cloud::get(), raw.len() as u64);
    let id = cloud.add_image("raw", &raw);
    for percent in [10, 50, 90] {
        let (gateway, region) = broken(of_files(vec![Fault::Cut(length * percent / 100)]));
        let case = format!("cut at {percent} %");
        pod(&id, &region).assert_fills(&image.raw, &case);
        let files = gateway.requests();
        let files: Vec<_> =
            files.iter().filter(|request| request.request.path().ends_with("/file")).collect();
        assert!(files.len() > 1, "{case}: nothing broke");
        let sent: u64 = files.iter().map(|request| request.body_bytes).sum();
        assert!(sent <= length * 101 / 100, "{case}: {sent} bytes of {length}");
    }
}
