//! Uploads that are cut off, and go on.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::random::Random;

use crate::{Scene, api, last_event};

const MIB: u64 = 1 << 20;

impl Scene {
    fn wait_until_sent(&self, mark: u64) {
        while self.wire.sent() < mark {
            sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn an_upload_goes_on_after_every_cut_and_a_proxy_that_dies_twice() {
    let mut scene = Scene::new();
    let content = disk::content(5, 256 * MIB);
    let image = scene.image(&content);
    let running = scene.upload(&image).start();
    let mut random = Random::new(7);
    for cut in 0..20 {
        scene.wait_until_sent(scene.wire.sent() + random.below(8 * MIB));
        if cut % 8 == 7 {
            scene.restart_proxy();
        }
        scene.wire.cut();
    }
    let finished = scene.finish(running, &content);
    let event = last_event(&finished);
    assert_eq!(event["resumable"], true, "{event}");
    let again = event["sent_again_bytes"].as_u64().or_fail("a number");
    // What was in the buffers of two sockets, a wire and a proxy: 1 % of a disk of 4 GiB with 1.4 of data.
    assert!(again < 20 * 2 * MIB, "{event}");
}

#[test]
fn another_process_goes_on_where_one_was_killed_or_stopped() {
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
    let running = scene.upload(&image).start();
    let wire = scene.wire.total();
    let finished = scene.finish(running, &content);
    let event = last_event(&finished);
    let stream = event["sent_bytes"].as_u64().or_fail("a number");
    let sent = wire.load(Ordering::Relaxed);
    // What was on its way came twice, and TLS takes a little.
    assert!(sent < stream + 16 * MIB, "{sent} for {stream}");
}

#[test]
fn a_token_that_expires_is_renewed() {
    let scene = Scene::new();
    let content = disk::content(7, 64 * MIB);
    let image = scene.image(&content);
    api().tokens.set_lifetime_seconds(2);
    let running = scene.upload(&image).start();
    scene.wait_until_sent(2 * MIB);
    sleep(Duration::from_secs(3));
    api().tokens.set_lifetime_seconds(300);
    scene.wire.cut();
    scene.finish(running, &content);
}

#[test]
fn an_upload_pod_that_starts_anew_gets_all_of_it_again() {
    let mut scene = Scene::new();
    let content = disk::content(8, 64 * MIB);
    let image = scene.image(&content);
    let running = scene.upload(&image).start();
    scene.wait_until_sent(8 * MIB);
    scene.restart_pod();
    let finished = scene.finish(running, &content);
    assert!(finished.stderr.contains("it begins anew"), "{}", finished.stderr);
}

#[test]
fn where_no_upload_can_be_continued_it_is_sent_in_one_request() {
    let scene = Scene::with(|pod| pod.env("CDI_UPLOAD_RESUME_SECONDS", "0"));
    let content = disk::content(9, 64 * MIB);
    let image = scene.image(&content);
    let running = scene.upload(&image).start();
    scene.wait_until_sent(8 * MIB);
    scene.wire.cut();
    let finished = scene.finish(running, &content);
    assert_eq!(last_event(&finished)["resumable"], false);
    let sentence = "this upload server cannot continue an upload";
    assert_eq!(
        finished.stderr.matches(sentence).count(),
        1,
        "{}",
        finished.stderr
    );
}
