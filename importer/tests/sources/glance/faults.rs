//! Images that differ from their descriptions, expiring tokens, and verified hashes.

use std::sync::LazyLock;
use std::time::Duration;

use testkit::fail::OrFail;
use testkit::gateway::Fault;
use testkit::openstack::script::{Cloud, Script};
use testkit::{disk, tools};

use super::{MIB, Place, assert_imports, assert_refuses, import};

static RAW: LazyLock<Vec<u8>> = LazyLock::new(|| disk::sparse_content(3, 8 * MIB, 2));

/// An image of [`RAW`].
pub(crate) fn qcow2() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (raw, image) = (folder.path().join("raw"), folder.path().join("image"));
    std::fs::write(&raw, &*RAW).unwrap();
    let options = ["convert", "-f", "raw", "-O", "qcow2"].map(std::ffi::OsString::from);
    tools::run("qemu-img", options.into_iter().chain([raw.into(), image.clone().into()]));
    std::fs::read(image).unwrap()
}

#[test]
#[ignore = "tools: qemu-img"]
fn the_secure_hash_is_verified_or_the_md5_if_there_is_none() {
    let zeros = "0".repeat(128);
    let image = qcow2();
    let whole = || Script::new(image.clone());
    let none = |script: Script| script.with("os_hash_algo", ()).with("os_hash_value", ());
    let bad_md5 = |script: Script| script.with("checksum", &zeros[..32]);
    let (wrong, md5) = ("the source announced sha512:0000", "the source announced md5:0000");
    let unverified = "it is not verified";
    for (script, refused, said) in [
        (whole(), None, ""),
        (bad_md5(whole()), None, ""),
        (whole().with("os_hash_value", &*zeros), Some(wrong), ""),
        (bad_md5(none(whole())), Some(md5), ""),
        // An algorithm that the importer does not know.
        (bad_md5(whole().with("os_hash_algo", "blake3")), Some(md5), ""),
        (none(whole()), None, ""),
        (none(whole()).with("checksum", ()), None, unverified),
        (whole().with("os_hash_value", "12"), Some("its hash cannot be used"), ""),
    ] {
        let cloud = Cloud::start(script);
        if let Some(sentence) = refused {
            assert_refuses(&cloud, sentence);
            continue;
        }
        let place = Place::new();
        let finished = place.assert_imports(import(&place, &cloud), &RAW, "a good hash, or none");
        assert!(finished.stderr.contains(said), "{}", finished.stderr);
        let is_warned = finished.stderr.contains(unverified);
        assert_eq!(is_warned, said == unverified, "{}", finished.stderr);
    }
}

#[test]
fn the_time_of_the_login_does_not_count_as_a_slow_source() {
    let pause = Duration::from_secs(2);
    let cloud = Cloud::start(
        Script { login_pause: pause, ..Script::new(&RAW[..]) }.with("disk_format", "raw"),
    );
    let place = Place::new();
    let finished = place.assert_imports(import(&place, &cloud), &RAW, "a slow login");
    let (_, limits) = finished.stdout.split_once("limited by: source ").or_fail(&finished.stdout);
    let seconds = limits.split(' ').next().and_then(|text| text.parse::<f64>().ok());
    assert!(seconds.or_fail(limits) < pause.as_secs_f64(), "{limits}");
}

#[test]
fn images_that_are_not_active_or_of_another_size_are_refused() {
    for (status, advice) in [
        ("queued", "it is queued, not active: wait until its upload has ended"),
        ("saving", "wait until its upload has ended"),
        ("deactivated", "an administrator has to reactivate it"),
        ("killed", "upload it again"),
        ("\u{1b}[2J\u{202e}", "not active"),
    ] {
        assert_refuses(&Cloud::start(Script::new("x").with("status", status)), advice);
    }
    for size in [8 * MIB - 1, 8 * MIB + 1] {
        let sentence = format!("it has {size} bytes, but the server sends {}", 8 * MIB);
        assert_refuses(&Cloud::start(Script::new(RAW.clone()).with("size", size)), &sentence);
    }
}

#[test]
fn an_expired_token_is_renewed_and_the_transfer_resumed() {
    let place = Place::new();
    let cloud = Cloud::start(Script {
        reads_of_token: 1,
        faults: vec![Fault::Cut(2 * MIB), Fault::None, Fault::Cut(3 * MIB)],
        ..Script::new(RAW.clone())
    });
    assert_imports(&place, import(&place, &cloud), &RAW);
    assert_eq!(cloud.tokens(), 3);
    let sent = cloud.sent_bytes();
    assert!(sent < 8 * MIB * 101 / 100, "{sent} bytes were sent");
}

#[test]
fn a_service_that_rejects_renewed_tokens_ends_the_import() {
    for faults in [vec![], vec![Fault::Cut(MIB)]] {
        let unauthorized = Fault::Status(401, Vec::new());
        let faults = [faults, vec![unauthorized; 2]].concat();
        let cloud = Cloud::start(Script { faults, ..Script::new(RAW.clone()) });
        assert_refuses(&cloud, "401");
        assert_eq!(cloud.tokens(), 2, "one renewal");
    }
    // Here the password becomes invalid during the import.
    let place = Place::new();
    let cloud = Cloud::start(Script {
        faults: vec![Fault::Cut(MIB), Fault::Status(401, Vec::new())],
        ..Script::new(RAW.clone())
    });
    let running = import(&place, &cloud).args(["--limit-rate", "4M"]).start();
    testkit::wait::until(|| "no token", || cloud.tokens() == 1);
    cloud.lock_out();
    let finished = running.wait();
    finished
        .assert_failure(3, "the identity service 127.0.0.1 refuses the user name or password: 401");
    assert!(!place.target().exists());
}
