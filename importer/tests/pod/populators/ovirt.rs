//! `ovirt-populator` with a scripted engine and the real image server.

use bytes::Bytes;
use testkit::certs::Authority;
use testkit::ovirt::{Contents, DISK_ID, Engine, PASSWORD, Script, USER};

use super::pod::{Pod, dense};

/// A pod that downloads the disk of the engine.
pub(crate) fn pod(engine: &Engine) -> Pod {
    named(engine.api_url().trim_end_matches("/ovirt-engine/api"))
}

fn named(engine: &str) -> Pod {
    let engine = format!("--engine-url={engine}");
    let disk = format!("--disk-id={DISK_ID}");
    let unused = ["--cr-name=populator", "--cr-namespace=default"];
    let flags = [&[engine.as_str(), disk.as_str()], unused.as_slice()].concat();
    Pod::new("ovirt-populator", &flags, &[("user", USER), ("password", PASSWORD)])
}

/// The script of an engine whose disk has these bytes.
pub(crate) fn holding(raw: impl Into<Bytes>) -> Script {
    Script::new(Contents { raw: raw.into(), cow: Bytes::new() })
}

#[test]
#[ignore = "tools: qemu-img"]
fn the_engine_may_be_given_by_the_url_of_its_api() {
    let folder = tempfile::tempdir().unwrap();
    let image = dense(folder.path());
    let engine = Engine::start(holding(std::fs::read(&image.raw).unwrap()));
    let api = engine.api_url();
    for address in [api.clone(), api + "/"] {
        named(&address).assert_fills(&image.raw, &address);
    }
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_engine_is_trusted_only_by_the_certificate_of_the_secret() {
    let folder = tempfile::tempdir().unwrap();
    let image = dense(folder.path());
    let authority = Authority::new().unwrap();
    let script = holding(std::fs::read(&image.raw).unwrap());
    let engine = Engine::start_tls(script, authority.server_config().unwrap());

    pod(&engine).assert_refused("certificate");
    for (pem, sentence) in [
        (Authority::new().unwrap().pem(), "certificate"),
        (
            "-----BEGIN CERTIFICATE-----\nno".to_owned(),
            "CA certificate is malformed, failed to configure the CA cert pool",
        ),
    ] {
        let mut stranger = pod(&engine);
        stranger.set("cacert", &pem);
        stranger.assert_refused(sentence);
    }
    let mut unclear = pod(&engine);
    unclear.set("insecureSkipVerify", "perhaps");
    unclear.assert_refused("insecureSkipVerify: \"perhaps\" is not a boolean");
    assert!(engine.calls().is_empty(), "the password went to a stranger");

    let mut trusting = pod(&engine);
    trusting.set("cacert", &authority.pem());
    trusting.assert_fills(&image.raw, "its authority");
    let mut careless = pod(&engine);
    careless.set("insecureSkipVerify", "true");
    careless.assert_fills(&image.raw, "not verified");
}

#[test]
fn refusals_are_reported_and_leave_no_disk() {
    let engine = Engine::start(holding(vec![7; 4096]));
    let mut wrong = pod(&engine);
    wrong.set("password", "wrong s3cret");
    wrong.assert_refused("the engine rejected the user name or password");
    pod(&engine).with("--disk-id=absent").assert_refused("absent");
    for too_small in [4095, 2048] {
        let pod = pod(&engine).with(format!("--pvc-size={too_small}"));
        pod.assert_refused(&format!(
            "virtual image size 4096 is larger than the reported available storage {too_small}"
        ));
    }
    let folder = tempfile::tempdir().unwrap();
    let expected = folder.path().join("expected");
    std::fs::write(&expected, [7; 4096]).unwrap();
    pod(&engine).with("--pvc-size=4096").assert_fills(&expected, "it just fits");
}
