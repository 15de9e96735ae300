//! Uploads that are interrupted and resumed.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stream::digest::{DigestAlgorithm, RunningDigest};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::random::Random;
use testkit::tools;

use crate::upload::{PATIENCE, Scene, api, is_thrifty, last_event};

const MIB: u64 = 1 << 20;

impl Scene {
    pub(super) fn wait_until_sent(&self, mark: u64) {
        let begun = Instant::now();
        while self.wire.sent() < mark {
            assert!(begun.elapsed() < PATIENCE, "{} of {mark} bytes", self.wire.sent());
            sleep(Duration::from_millis(1));
        }
    }
}

/// Returns the checksum of an image, as `--checksum` takes it.
fn checksum(algorithm: DigestAlgorithm, content: &[u8]) -> String {
    let mut digest = RunningDigest::new(algorithm);
    digest.update(content);
    digest.finish_digest()
}

/// Longer than client and servers allow a connection to be silent.
const SILENCE: Duration = Duration::from_secs(65);

#[test]
#[ignore = "server: Kubernetes"]
fn an_upload_resumes_after_cuts_restarts_expiry_and_silence() {
    let mut scene = Scene::new();
    let content = disk::content(5, 384 * MIB);
    let image = scene.image(&content);
    api().tokens.set_lifetime_seconds(SILENCE.as_secs().try_into().or_fail("seconds"));
    let running = scene.upload_for(&image, "5m").start();
    let mut random = Random::new(7);
    for cut in 0..20 {
        scene.wait_until_sent(scene.wire.sent() + random.below(12 * MIB));
        match cut {
            7 | 15 => scene.restart_proxy(),
            10 => scene.wire.be_silent(SILENCE),
            13 => scene.restart_pod(),
            _ => {}
        }
        scene.wire.cut();
    }
    api().tokens.set_lifetime_seconds(300);
    let finished = scene.finish(running, &content);
    let event = last_event(&finished);
    assert_eq!(event["resumable"], true, "{event}");
    let again = event["sent_again_bytes"].as_u64().or_fail("a number");
    // The bytes in the buffers of two sockets, a relay and a proxy, and those that a killed pod
    // had not written to the disk: together less than 2 % of a disk of 4 GiB.
    assert!(again < 20 * 2 * MIB + 32 * MIB || !is_thrifty(), "{event}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn another_process_resumes_a_killed_or_stopped_upload() {
    let scene = Scene::new();
    let content = disk::sparse_content(6, 256 * MIB, 4);
    let image = scene.image(&content);
    for (signal, code) in [(Signal::KILL, -1), (Signal::INT, 130)] {
        let running = scene.upload(&image).start();
        scene.wait_until_sent(scene.wire.sent() + 8 * MIB);
        running.signal(signal);
        let finished = running.wait();
        if code > 0 {
            let command = format!("kubectl cdi upload {} pvc/{}", image.display(), scene.claim);
            finished.assert_failure(code, &command);
        }
    }
    // The last process has to read again what the others have sent.
    let checksum = checksum(DigestAlgorithm::Sha512, &content);
    let running = scene.upload(&image).args(["--checksum", &checksum]).start();
    let [sent, stream] = scene.finish_counting(running, &content);
    // Bytes in flight were sent twice, and TLS adds a little.
    assert!(sent < stream + 16 * MIB, "{sent} for {stream}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_restarted_pod_gets_little_more_than_the_rest() {
    let mut scene = Scene::new();
    let content = disk::content(11, 256 * MIB);
    let image = scene.image(&content);
    let running = scene.upload(&image).start();
    // Over a slow network, the client compresses all of it, to 108 MiB.
    scene.wait_until_sent(64 * MIB);
    scene.restart_pod();
    let [sent, stream] = scene.finish_counting(running, &content);
    // The proxy answers while the client is still sending, and the client must stop then.
    assert!(sent < stream + 48 * MIB || !is_thrifty(), "{sent} for {stream}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn another_process_resumes_with_another_pod() {
    let mut scene = Scene::new();
    let content = disk::sparse_content(10, 256 * MIB, 2);
    let image = scene.image(&content);
    let running = scene.upload(&image).start();
    scene.wait_until_sent(24 * MIB);
    running.signal(Signal::KILL);
    running.wait();
    scene.restart_pod();
    let running = scene.upload(&image).start();
    let wire = scene.wire.total();
    let finished = scene.finish(running, &content);
    let kept = "the server already has ";
    assert!(finished.stderr.contains(kept), "{}", finished.stderr);
    let event = last_event(&finished);
    let stream = event["sent_bytes"].as_u64().or_fail("a number");
    let sent = wire.load(Ordering::Relaxed);
    assert!(sent < stream + 32 * MIB, "{sent} for {stream}");
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_compressed_image_is_sent_again_to_a_restarted_pod() {
    let mut scene = Scene::new();
    let content = disk::content(8, 64 * MIB);
    let image = scene.image(&tools::filter("gzip", ["-1c"], &content));
    let running = scene.upload(&image).start();
    scene.wait_until_sent(8 * MIB);
    scene.restart_pod();
    let finished = scene.finish(running, &content);
    assert!(finished.stderr.contains("starting over"), "{}", finished.stderr);
}

/// Without the checksum below, which older clients lack (`ci/versions`).
#[test]
#[ignore = "server: Kubernetes"]
fn without_support_for_resuming_the_image_is_sent_in_one_request() {
    let scene = Scene::with(|pod| pod.env("CDI_UPLOAD_RESUME_SECONDS", "0"));
    let content = disk::content(9, 64 * MIB);
    let image = scene.image(&content);
    let running = scene.upload(&image).start();
    scene.wait_until_sent(8 * MIB);
    scene.wire.cut();
    let finished = scene.finish(running, &content);
    assert_eq!(last_event(&finished)["resumable"], false);
    let sentence =
        "uploads cannot be resumed here: the upload proxy or the upload server does not support it";
    assert_eq!(finished.stderr.matches(sentence).count(), 1, "{}", finished.stderr);
}

#[test]
#[ignore = "server: Kubernetes"]
fn a_checksum_covers_an_image_that_is_sent_in_one_request() {
    let scene = Scene::with(|pod| pod.env("CDI_UPLOAD_RESUME_SECONDS", "0"));
    let content = disk::content(9, 64 * MIB);
    let image = scene.image(&content);
    let wrong = checksum(DigestAlgorithm::Md5, &content[1..]);
    let finished = scene.upload(&image).args(["--checksum", &wrong]).run();
    finished.assert_failure(6, &format!("checksum mismatch: expected {wrong}, calculated md5:"));
    // The server notices a little later that no more bytes come.
    let is_gone = || !scene.pod.disk().exists();
    testkit::wait::until(|| "the disk still exists".to_owned(), is_gone);
    // The second stream begins with bytes that are hashed already.
    let right = checksum(DigestAlgorithm::Md5, &content);
    let running = scene.upload(&image).args(["--checksum", &right]).start();
    scene.wait_until_sent(scene.wire.sent() + 8 * MIB);
    scene.wire.cut();
    scene.finish(running, &content);
}
