//! Limits that an administrator sets.

use std::time::{Duration, Instant};

use testkit::fail::OrFail;
use testkit::https::Connection;
use testkit::upload_proxy::{Scripted, UploadProxy};
use testkit::upstream::{Reads, Script, Then};
use testkit::wait;

use crate::{BINARY, PATH};

fn front(args: &[&str]) -> Scripted {
    let proxy = args.iter().fold(UploadProxy::new(BINARY), |proxy, arg| proxy.arg(arg));
    Scripted::start_with(proxy, vec![Script::status(200, "done")])
}

/// Begins an upload that does not end.
fn begin(front: &Scripted) -> Connection {
    let before = front.upstream.seen().len();
    let mut connection = front.server.connect();
    connection.begin(&front.request("POST", PATH).length(2)).or_fail("send");
    connection.send(b"x").or_fail("send");
    front.upstream.wait_for("an upload", |seen| seen.len() > before);
    connection
}

#[test]
fn uploads_above_a_limit_are_refused_until_one_ends() {
    for args in [["--max-uploads", "2"], ["--max-uploads-per-client", "2"]] {
        let front = front(&args);
        let mut uploads = [begin(&front), begin(&front)];
        let refused = front.server.exchange(&front.request("POST", PATH), b"x");
        assert_eq!(refused.status, 429, "{args:?}: {refused:?}");
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        assert!(refused.text().contains("at most 2"), "{refused:?}");
        // Requests that bring no body are not uploads.
        let head = front.server.exchange(&front.request("HEAD", PATH), b"");
        assert_eq!(head.status, 200, "{head:?}");
        uploads[0].send(b"y").or_fail("send");
        uploads[0].response().or_fail("an answer").assert(200, "done");
        front.server.exchange(&front.request("POST", PATH), b"x").assert(200, "done");
        // An aborted upload makes room as well.
        let [_, given_up] = uploads;
        drop(given_up);
        let _first = begin(&front);
        let is_taken = || front.server.exchange(&front.request("POST", PATH), b"x").status == 200;
        wait::until(|| front.server.log(), is_taken);
    }
}

#[test]
#[ignore = "slow: waits 30 s"]
fn a_stalled_upload_is_ended_when_another_needs_its_place() {
    // Measured by the clock of the proxy, another process.
    const STALLED: Duration = Duration::from_secs(30);
    let front = front(&["--max-uploads", "2"]);
    // Two uploads: the upload server of one does not read, and the client of the other is still
    // sending.
    front.upstream.follow(Script::stop(Reads::Head, Then::Hang));
    let mut stalled = front.server.connect();
    stalled.begin(&front.request("POST", PATH).length(1 << 30)).or_fail("send");
    front.upstream.wait_for("an upload", |seen| seen.len() == 1);
    front.upstream.follow(Script::status(200, "done"));
    let mut moving = front.server.connect();
    moving.begin(&front.request("POST", PATH).length(1000)).or_fail("send");
    front.upstream.wait_for("another upload", |seen| seen.len() == 2);
    let began = Instant::now();
    let mut sent = 0;
    while front.server.exchange(&front.request("POST", PATH), b"x").status == 429 {
        assert!(began.elapsed() < wait::PATIENCE, "{}", front.server.log());
        moving.send(b"y").or_fail("send");
        sent += 1;
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(began.elapsed() >= STALLED, "{:?}", began.elapsed());
    let given_up = stalled.response().or_fail("an answer");
    assert_eq!(given_up.status, 429, "{given_up:?}");
    assert!(given_up.text().contains("no progress for 30 s"), "{given_up:?}");
    moving.send(&vec![b'y'; 1000 - sent]).or_fail("send");
    moving.response().or_fail("an answer").assert(200, "done");
}

#[test]
#[ignore = "alone: measures a rate"]
fn concurrent_uploads_keep_to_the_rate_limit_together() {
    const RATE: usize = 4 << 20;
    let content = vec![b'x'; RATE / 2];
    for flag in ["--limit-rate", "--limit-rate-per-client"] {
        let front = front(&[flag, &RATE.to_string()]);
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let response = front.server.exchange(&front.request("POST", PATH), &content);
                    response.assert(200, "done");
                });
            }
        });
        let took = started.elapsed();
        // A second and a half at this rate, less a tenth that may come at once.
        let expected = Duration::from_millis(1200)..Duration::from_secs(5);
        assert!(expected.contains(&took), "{flag}: {took:?}");
    }
}
