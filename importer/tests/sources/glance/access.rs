//! Credentials for a cloud in variables and options, and the endpoints that they lead to.

use testkit::disk;
use testkit::openstack::script::{
    CLOUD, CREDENTIAL, Cloud, OWN_TOKEN, PASSWORD, Script, USER, catalog,
};
use testkit::process::Program;

use super::faults::qcow2;
use super::{ACCESS, MIB, Place, assert_imports, assert_refused, assert_refuses};
use crate::place::USAGE;

#[test]
fn every_kind_of_credentials_opens_the_image() {
    let scope = [("OS_PROJECT_ID", "1")];
    let proofs: [&[(&str, &str)]; 4] = [
        &ACCESS,
        &[("OS_TOKEN", OWN_TOKEN)],
        &[("OS_AUTH_TYPE", "v3token"), ("OS_TOKEN", OWN_TOKEN), scope[0]],
        &[
            ("OS_AUTH_TYPE", "v3applicationcredential"),
            ("OS_APPLICATION_CREDENTIAL_ID", "credential"),
            ("OS_APPLICATION_CREDENTIAL_SECRET", CREDENTIAL),
        ],
    ];
    let raw = disk::content(1, MIB);
    for proof in proofs {
        let (place, cloud) = (Place::new(), Cloud::start(Script::new(raw.clone())));
        assert_imports(&place, place.import(&cloud.source()).envs(proof), &raw);
    }
}

#[test]
fn incomplete_credentials_and_addresses_are_a_usage_error() {
    let place = Place::new();
    let wrong = [ACCESS[0], ACCESS[1], ACCESS[3], ("OS_INTERFACE", "private")];
    for (end, access, sentence) in [
        ("?image=1", &ACCESS[..3], "variable OS_USER_DOMAIN_NAME: is not set or empty"),
        (
            "?image=1",
            &[("OS_AUTH_TYPE", "kerberos")][..],
            "OS_AUTH_TYPE: unsupported authentication type",
        ),
        ("?image=1", &wrong[..], "OS_INTERFACE: is not public, internal or admin"),
        ("", &ACCESS[..], "image"),
        ("?image=", &ACCESS[..], "image"),
        ("?id=1", &ACCESS[..], "image"),
        ("?image=1&x=2", &ACCESS[..], "image"),
        ("?image=..", &ACCESS[..], "image"),
    ] {
        let program = place.import(&format!("glance+http://127.0.0.1:1/v3{end}")).envs(access);
        let finished = place.assert_refused(program, USAGE, sentence);
        assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
    }
}

#[test]
fn variables_of_one_cloud_do_not_go_to_another() {
    let raw = disk::content(1, MIB);
    let cloud = Cloud::start(Script::new(raw.clone()));
    let place = Place::new();
    let of = |url: &str| place.import(&cloud.source()).envs(&ACCESS).env("OS_AUTH_URL", url);
    let elsewhere = "https://keystone.example:5000/v3";
    place.assert_refused(
        of(elsewhere),
        USAGE,
        "the variables OS_… are for keystone.example (see OS_AUTH_URL), not for 127.0.0.1",
    );
    assert!(cloud.requests().is_empty());
    assert_imports(&place, of(elsewhere).arg("--ambient-identity"), &raw);
    assert_imports(&place, of(&format!("http://{}/v3", cloud.address())), &raw);
}

#[test]
#[ignore = "tools: qemu-img"]
fn options_override_variables_for_info_and_check_too() {
    let cloud = Cloud::start(Script::new(qcow2()));
    let place = Place::new();
    for command in ["info", "check"] {
        let program = Program::new(crate::BINARY).args([command, &cloud.source()]);
        let others = [
            ("OS_AUTH_TYPE", "token"),
            ("OS_USER_ID", "another"),
            ("OS_USERNAME", "another"),
            ("OS_PASSWORD", "another"),
            ACCESS[2],
            ACCESS[3],
        ];
        let program = program.args(place.as_user(USER, PASSWORD)).envs(&others);
        program.run().assert_success(command);
    }
}

#[test]
fn region_and_interface_choose_the_endpoint() {
    let url = format!("{CLOUD}/image/v2/");
    let wrong = format!("{CLOUD}/elsewhere");
    let endpoints = [
        ("compute", "public", "north", wrong.as_str()),
        ("image", "public", "north", wrong.as_str()),
        ("image", "internal", "north", wrong.as_str()),
        ("image", "public", "south", wrong.as_str()),
        ("image", "internal", "south", url.as_str()),
    ];
    let raw = disk::content(1, MIB);
    let (place, script) = (Place::new(), Script::new(raw.clone()));
    let cloud = Cloud::start(Script { catalog: catalog(&endpoints), ..script });
    let import = |more: &[(&str, &str)]| place.import(&cloud.source()).envs(&ACCESS).envs(more);
    for interface in ["internal", "internalURL"] {
        let program = import(&[("OS_REGION_NAME", "south"), ("OS_INTERFACE", interface)]);
        assert_imports(&place, program, &raw);
    }
    for (more, sentence) in [
        (&[][..], "the cloud has image services in several regions: name one of north, south"),
        (
            &[("OS_REGION_NAME", "west")],
            "the cloud has no image service in the region west: use one of north, south",
        ),
        (
            &[("OS_REGION_NAME", "south"), ("OS_INTERFACE", "admin")],
            "the image service has no admin endpoint: use one of public, internal",
        ),
    ] {
        assert_refused(&place, import(more), sentence);
    }
}

#[test]
fn a_token_without_services_is_distinguished_from_a_cloud_without_images() {
    let (place, cloud) = (Place::new(), Cloud::start(Script::new("x")));
    let unscoped = [ACCESS[0], ACCESS[1], ("OS_USER_DOMAIN_ID", "default")];
    let program = place.import(&cloud.source()).envs(&unscoped);
    assert_refused(&place, program, "the token is not valid for any service: name the project");

    let others = ["compute", "volumev3"].map(|kind| (kind, "public", "one", CLOUD));
    let cloud = Cloud::start(Script { catalog: catalog(&others), ..Script::new("x") });
    let sentence = "the cloud's catalogue has no image service, only compute, volumev3";
    assert_refuses(&cloud, sentence);
}
