//! Failing clones: servers that refuse, break off or are not trusted; volumes that cannot be read.

use std::path::Path;

use testkit::certs::{Authority, KeyKind};
use testkit::clone_pod::ClonePod;
use testkit::fail::OrFail;
use testkit::upstream::{End, Reads, Says, Script, Then, answer};

use super::{BINARY, FATAL, MIB, Scene, start};

/// The kubelet shows the termination message instead of the end of the log.
#[track_caller]
fn assert_message(pod: &ClonePod, sentence: &str) {
    let message = pod.message().or_fail("a termination message");
    assert!(message.contains(sentence), "{message}");
}

#[test]
fn a_refusal_is_reported_even_if_it_comes_early() {
    for (status, sentence, expected) in [
        (503, "", "Unexpected status code 503"),
        (401, "", "Unexpected status code 401"),
        (409, "", "Unexpected status code 409"),
        (307, "", "Unexpected status code 307"),
        (
            500,
            "Saving stream failed:\nno space left on device",
            "Unexpected status code 500: Saving stream failed: no space left on device",
        ),
    ] {
        for early in [true, false] {
            let script = if early {
                Script::early(answer(status, sentence))
            } else {
                Script::status(status, sentence)
            };
            let scene = Scene::of_cdi(script);
            // More than all buffers between the cloner and the server hold.
            scene.fill(24);
            let pod = scene.pod().block(&scene.disk());
            start(&pod).assert_failure(FATAL, expected);
            assert_message(&pod, expected);
        }
    }
}

#[test]
fn a_success_status_before_everything_is_sent_is_an_error() {
    let scene = Scene::of_cdi(Script {
        reads: Reads::Part(MIB),
        says: Says::Bytes(answer(200, "")),
        then: Then::Hang,
    });
    scene.fill(64);
    let pod = scene.pod().block(&scene.disk());
    let sentence = "the server answered 200 OK before everything was sent";
    start(&pod).assert_failure(FATAL, sentence);
    assert_message(&pod, sentence);
}

#[test]
fn a_connection_that_breaks_is_an_error_with_the_url() {
    for then in [Then::Reset, Then::Close] {
        for reads in [Reads::Head, Reads::Part(MIB), Reads::Everything] {
            let scene = Scene::of_cdi(Script::stop(reads, then));
            let pod = scene.pod().block(&scene.disk());
            let finished = start(&pod);
            finished.assert_failure(FATAL, &format!(" POSTing to {}", scene.url()));
            assert!(finished.stderr.contains("Error "), "{}", finished.stderr);
            assert_message(&pod, &format!(" POSTing to {}", scene.url()));
        }
    }
}

#[test]
fn nothing_is_sent_unless_both_sides_trust_each_other() {
    let scene = Scene::of_cdi(Script::status(200, ""));
    let other = Authority::new().unwrap();
    let stranger = other.client("source/pvc-target/pvc", KeyKind::Ecdsa).unwrap();
    let block = |pod: ClonePod| pod.block(&scene.disk());
    let [nobody] = testkit::ports::free();
    let nowhere = format!("https://{nobody}/v1beta1/upload");
    for (pod, sentence) in [
        // The client does not trust the server; then the server does not trust the client.
        (ClonePod::new(BINARY, &other, &scene.client, &scene.url()), "certificate"),
        (ClonePod::new(BINARY, &scene.authority, &stranger, &scene.url()), " POSTing to "),
        (
            ClonePod::new(BINARY, &scene.authority, &scene.client, &nowhere),
            "connect: connection refused POSTing to ",
        ),
        (scene.pod().env("UPLOAD_URL", "http://127.0.0.1:1/"), "is not the https URL"),
        (scene.pod().env("SERVER_CA_CERT", "no PEM"), "no certificate found"),
        (scene.pod().env("CLIENT_CERT", "no PEM"), "Error creating http client"),
        (scene.pod().env("CLIENT_KEY", "secret"), "Error creating http client"),
    ] {
        let pod = block(pod);
        let finished = start(&pod);
        finished.assert_failure(FATAL, sentence);
        assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
        assert_message(&pod, sentence);
    }
    assert!(scene.upstream.seen().is_empty());
}

#[test]
fn a_volume_that_cannot_be_read_breaks_the_connection() {
    let scene = Scene::of_cdi(Script::status(200, ""));
    let pod = scene.pod().files(Path::new("/sys/class/net/lo"));
    let finished = start(&pod);
    finished.assert_failure(FATAL, "Error reading the volume: /sys/class/net/lo/");
    assert!(
        finished.stderr.contains("it had 4096 bytes, and now ends at byte"),
        "{}",
        finished.stderr
    );
    assert_message(&pod, "Error reading the volume: /sys/class/net/lo/");
    let ended = |seen: &[std::sync::Arc<testkit::upstream::Seen>]| {
        seen.iter().all(|seen| seen.end().is_some())
    };
    let seen = scene.upstream.wait_for("the end of the request", ended);
    assert!(seen.iter().skip(1).all(|clone| clone.end() == Some(End::Aborted)));
}
