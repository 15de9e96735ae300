//! `ovirt-populator` with a scripted engine and the real image server.

use std::sync::Arc;

use bytes::Bytes;
use testkit::certs::Authority;
use testkit::ovirt::{Contents, DISK_ID, Daemon, Engine, Fault, PASSWORD, Script, USER};

use super::pod::{Pod, assert_fills_device, dense, images};

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
#[ignore = "server: ovirt-imageio"]
fn every_image_on_every_target_is_what_qemu_img_makes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon::start(None));
    for (_, image, raw) in images(folder.path()) {
        let engine = Engine::start(Script {
            daemon: Some(Arc::clone(&daemon)),
            ..holding(std::fs::read(&image).unwrap())
        });
        let case = image.display().to_string();
        pod(&engine).assert_fills(&raw, &case);
        assert_fills_device(pod(&engine), &raw, &case);
        assert!(engine.is_logged_out() && !engine.leaked(), "{:?}", engine.calls());
    }
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
fn refusals_of_the_engine_are_reported_and_leave_no_disk() {
    let engine = Engine::start(holding(vec![7; 4096]));
    let mut wrong = pod(&engine);
    wrong.set("password", "wrong s3cret");
    wrong.assert_refused("the engine rejected the user name or password");
    pod(&engine).with("--disk-id=absent").assert_refused("absent");
    pod(&engine).with("--pvc-size=2048").assert_refused("virtual image size 4096 is larger");
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_broken_download_resumes_where_it_broke() {
    let folder = tempfile::tempdir().unwrap();
    let image = dense(folder.path());
    let raw = std::fs::read(&image.raw).unwrap();
    let length = raw.len() as u64;
    for percent in [10, 50, 90] {
        let engine = Engine::start(Script {
            faults: vec![Fault::CutAt(length * percent / 100)],
            ..holding(raw.clone())
        });
        let case = format!("cut at {percent} %");
        let finished = pod(&engine).assert_fills(&image.raw, &case);
        assert!(finished.stderr.contains("retrying in "), "{case}: {}", finished.stderr);
        let sent = engine.body_bytes();
        assert!(sent <= length * 101 / 100, "{case}: {sent} bytes of {length}");
    }
}
