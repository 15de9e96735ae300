//! The end of the proxy: running uploads may finish.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::fail::OrFail;
use testkit::https::Connection;
use testkit::upload_proxy::Scripted;
use testkit::upstream::{End, Script};
use testkit::wait;

use crate::{BINARY, PATH, time_upload};

/// Begins an upload and sends half of it.
fn begin(front: &Scripted, content: &[u8]) -> Connection {
    let mut connection = front.server.connect();
    connection.begin(&front.request("POST", PATH).length(content.len())).or_fail("send");
    connection.send(&content[..content.len() / 2]).or_fail("send");
    let half = content.len() as u64 / 2;
    front
        .upstream
        .wait_for("half of it", |seen| seen.last().is_some_and(|seen| seen.body_bytes() == half));
    connection
}

/// Waits until new connections are refused.
fn wait_until_refused(front: &Scripted) {
    let is_refused = || TcpStream::connect(front.server.address()).is_err();
    wait::until(|| "new connections are still accepted", is_refused);
}

#[test]
#[ignore = "slow: waits 4 s"]
fn a_running_upload_finishes_after_a_signal_and_new_ones_are_refused() {
    let front = Scripted::start(BINARY, vec![Script::status(200, "done")]);
    // A connection that waits for its next request is closed at once.
    let mut idle = front.server.connect();
    let answered = idle.exchange(&front.request("HEAD", PATH), b"").or_fail("an answer");
    assert_eq!(answered.status, 200);
    let content = vec![b'x'; 1 << 20];
    let mut upload = begin(&front, &content);
    front.server.signal(Signal::TERM);
    wait_until_refused(&front);
    assert!(idle.is_closed_within(wait::PATIENCE).or_fail("a look"), "an idle connection is kept");
    // There is no event to wait for: nothing may end the upload in this time.
    std::thread::sleep(Duration::from_secs(1));
    upload.send(&content[content.len() / 2..]).or_fail("send");
    upload.response().or_fail("an answer").assert(200, "done");
    let seen = front.upstream.seen();
    assert_eq!(seen.last().or_fail("an upload").end(), Some(End::Complete));
    let finished = front.server.wait();
    assert!(!finished.crashed(), "{}", finished.stderr);
    let line = finished.stderr.lines().find(|line| line.contains("upload pvc=disk"));
    let line = line.or_fail(&finished.stderr);
    assert!(line.contains("outcome=completed"), "{line}");
}

#[test]
#[ignore = "alone: measures how long the proxy takes to end"]
fn an_idle_proxy_ends_at_once() {
    let front = Scripted::start(BINARY, vec![Script::status(200, "")]);
    time_upload(&front);
    let started = Instant::now();
    front.server.signal(Signal::TERM);
    let finished = front.server.wait();
    assert!(!finished.crashed(), "{}", finished.stderr);
    // The proxy must not wait for anybody; waiting for a header alone would take ten seconds.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// The upload would keep the proxy for ever. A second signal counts after half a second.
#[test]
fn a_second_signal_ends_running_uploads() {
    let front = Scripted::start(BINARY, vec![Script::status(200, "")]);
    let _upload = begin(&front, &[b'x'; 1000]);
    front.server.signal(Signal::TERM);
    wait_until_refused(&front);
    while !front.server.has_ended() {
        front.server.signal(Signal::TERM);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_ne!(front.server.wait().code(), 0);
}
