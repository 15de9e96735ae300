//! Credentials for a cloud in variables and options, and the endpoints that they lead to.

use testkit::disk;
use testkit::openstack::script::{
    CLOUD, CREDENTIAL, Cloud, OWN_TOKEN, PASSWORD, Script, USER, catalog,
};
use testkit::process::Program;

use crate::glance::faults::qcow2;
use crate::glance::{ACCESS, MIB, Place};

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
        let place = Place::new();
        let cloud = Cloud::start(Script::new(raw.clone()));
        let finished = place.import_with(&cloud.source(), proof).run();
        finished.assert_success("a proof");
        place.assert_disk(&raw);
        for secret in [PASSWORD, CREDENTIAL, OWN_TOKEN, "token-1"] {
            assert!(!finished.stderr.contains(secret), "{}", finished.stderr);
        }
    }
}

#[test]
fn incomplete_credentials_are_a_usage_error() {
    for (access, sentence) in [
        (
            &[][..],
            "environment variable OS_USERNAME: is not set or empty; environment variable OS_PASSWORD",
        ),
        (&ACCESS[..3], "environment variable OS_USER_DOMAIN_NAME: is not set or empty"),
        (
            &[("OS_AUTH_TYPE", "kerberos")],
            "environment variable OS_AUTH_TYPE: unsupported authentication type",
        ),
        (
            &[ACCESS[0], ACCESS[1], ACCESS[3], ("OS_INTERFACE", "private")],
            "OS_INTERFACE: is not public, internal or admin",
        ),
    ] {
        let place = Place::new();
        let program = place.import_with("glance+http://127.0.0.1:1/v3?image=1", access);
        let finished = program.run();
        finished.assert_failure(2, sentence);
        assert!(!finished.stderr.contains(PASSWORD), "{}", finished.stderr);
    }
    let addresses = ["", "?image=", "?id=1", "?image=1&x=2", "?image=.."];
    for address in addresses.map(|end| format!("glance+http://127.0.0.1:1/v3{end}")) {
        let finished = Place::new().import_with(&address, &ACCESS).run();
        finished.assert_failure(2, "image");
    }
}

#[test]
fn variables_of_one_cloud_do_not_go_to_another() {
    let raw = disk::content(1, MIB);
    let cloud = Cloud::start(Script::new(raw.clone()));
    let place = Place::new();
    let strange = [&ACCESS[..], &[("OS_AUTH_URL", "https://keystone.example:5000/v3")]].concat();
    let import = || place.import_with(&cloud.source(), &strange);
    import().run().assert_failure(
        2,
        "the variables OS_… are for keystone.example (see OS_AUTH_URL), not for 127.0.0.1",
    );
    assert!(cloud.requests().is_empty());
    import().arg("--ambient-identity").run().assert_success("allowed by the user");
    let own = format!("http://{}/v3", cloud.address());
    let own = [&ACCESS[..], &[("OS_AUTH_URL", own.as_str())]].concat();
    place.import_with(&cloud.source(), &own).arg("--force").run().assert_success("its own cloud");
}

#[test]
#[ignore = "tools: qemu-img"]
fn options_override_variables_for_info_and_check_too() {
    let cloud = Cloud::start(Script::new(qcow2()));
    let place = Place::new();
    std::fs::write(place.path("password"), PASSWORD).unwrap();
    for command in ["info", "check"] {
        let program = Program::new(crate::BINARY)
            .args([command, &cloud.source(), "--user", USER, "--password-file"])
            .arg(place.path("password"));
        let others = [
            ("OS_AUTH_TYPE", "token"),
            ("OS_USER_ID", "another"),
            ("OS_USERNAME", "another"),
            ("OS_PASSWORD", "another"),
            ACCESS[2],
            ACCESS[3],
        ];
        let program =
            others.iter().fold(program, |program, (name, value)| program.env(name, *value));
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
    let script = Script { catalog: catalog(&endpoints), ..Script::new(raw.clone()) };
    let import = |more: &[(&'static str, &'static str)]| {
        let (place, cloud) = (Place::new(), Cloud::start(script.clone()));
        let program = place.import_with(&cloud.source(), &[&ACCESS[..], more].concat());
        (place, cloud, program)
    };
    for interface in ["internal", "internalURL"] {
        let (place, _cloud, program) =
            import(&[("OS_REGION_NAME", "south"), ("OS_INTERFACE", interface)]);
        program.run().assert_success(interface);
        place.assert_disk(&raw);
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
        let (place, _cloud, program) = import(more);
        place.assert_refused(program, sentence);
    }
}

#[test]
fn a_token_without_services_is_distinguished_from_a_cloud_without_images() {
    let place = Place::new();
    let cloud = Cloud::start(Script::new("x"));
    let unscoped = [ACCESS[0], ACCESS[1], ("OS_USER_DOMAIN_ID", "default")];
    let program = place.import_with(&cloud.source(), &unscoped);
    place.assert_refused(program, "the token is not valid for any service: name the project");

    let cloud = Cloud::start(Script {
        catalog: catalog(&[
            ("compute", "public", "one", CLOUD),
            ("volumev3", "public", "one", CLOUD),
        ]),
        ..Script::new("x")
    });
    let sentence = "the cloud's catalogue has no image service, only compute, volumev3";
    place.assert_refused(place.import(&cloud), sentence);
}
