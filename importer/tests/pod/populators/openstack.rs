//! `openstack-populator` with the real Keystone and Glance.

use testkit::disk;
use testkit::openstack::real::{Cloud, DOMAIN, PASSWORD, REGION, USER};
use testkit::openstack::script;

use super::pod::{MIB, Pod, dense};

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

/// An import that needs no program of others.
#[test]
fn a_scripted_cloud_fills_the_volume() {
    let raw = disk::content(1, MIB);
    let cloud = script::Cloud::start(script::Script::new(raw.clone()));
    let endpoint = format!("--endpoint=http://{}/v3", cloud.address());
    let image = format!("--image-id={}", script::IMAGE_ID);
    let secret = [
        ("username", script::USER),
        ("password", script::PASSWORD),
        ("userDomainID", "default"),
        ("projectName", "disks"),
        ("projectDomainName", "default"),
        ("regionName", "RegionOne"),
    ];
    let pod = Pod::new("openstack-populator", &[&endpoint, &image], &secret);
    let expected = pod.folder().join("expected");
    std::fs::write(&expected, raw).unwrap();
    pod.assert_fills(&expected, "a scripted cloud");
}

fn anonymous(image: &str, region: &str) -> Pod {
    let endpoint = format!("--endpoint={}", Cloud::get().identity());
    let image = format!("--image-id={image}");
    Pod::new("openstack-populator", &[&endpoint, &image], &[("regionName", region)])
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
fn refusals_are_reported_and_leave_no_disk() {
    let id = Cloud::get().add_image("raw", &[7; 4096]);
    let mut wrong = pod(&id, REGION);
    wrong.set("password", "wrong s3cret");
    wrong.assert_refused("the user name or password");
    pod(&id, "elsewhere").assert_refused("region");
    pod(ABSENT, REGION).assert_refused(ABSENT);
    let mut odd = pod(&id, REGION);
    odd.set("authType", "kerberos");
    odd.assert_refused("unsupported authentication type");
    let small = pod(&id, REGION).with("--pvc-size=2048");
    small.assert_refused(
        "virtual image size 4096 is larger than the reported available storage 2048",
    );
}
