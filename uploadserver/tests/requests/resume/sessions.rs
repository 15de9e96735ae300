//! Clients that keep an upload open, but send nothing or almost nothing.

use std::time::{Duration, Instant};

use testkit::disk;
use testkit::upload_pod::{Server, UploadPod};
use testkit::wait;

use crate::resume::{BINARY, create, patch, tus};

/// How long an upload may wait for its client, and when it must have ended.
const RESUME: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(8);

/// Time between the requests of a client.
const INTERVAL: Duration = Duration::from_millis(300);

/// Calls `client` repeatedly until the server has ended the upload, and returns when that was.
fn until_ended(server: &Server, mut client: impl FnMut(usize) -> u16) -> Duration {
    let started = Instant::now();
    for round in 0.. {
        let status = client(round);
        if [404, 409, 410, 500].contains(&status) {
            break;
        }
        assert!(started.elapsed() < SOON, "still open after {round} requests: {status}");
        std::thread::sleep(INTERVAL);
    }
    server.wait_until_idle();
    started.elapsed()
}

#[test]
#[ignore = "slow: waits 12 s"]
fn requests_with_little_or_no_data_do_not_keep_an_upload_open() {
    let content = disk::content(1, 4 << 20);
    let pod = UploadPod::new(BINARY).env("CDI_UPLOAD_RESUME_SECONDS", "3");
    let server = pod.start();
    for kind in ["HEAD", "empty PATCH", "PATCH of a byte", "PATCH at a wrong offset"] {
        let path = create(&server, content.len(), None);
        let ended = until_ended(&server, |round| {
            let response = match kind {
                "HEAD" => server.exchange(&tus("HEAD", &path), &[]),
                "empty PATCH" => server.exchange(&patch(&path, 0).length(0), &[]),
                "PATCH of a byte" => server.exchange(&patch(&path, round), &content[round..=round]),
                _ => match server.exchange(&patch(&path, 5), &content[5..6]) {
                    // A wrong offset alone does not mean that the upload has ended.
                    wrong if wrong.text().contains("bytes were received") => return 204,
                    other => other,
                },
            };
            response.status
        });
        assert!(ended >= RESUME - INTERVAL, "{kind}: ended after {ended:?}");
        assert_eq!(pod.data_names(), [""; 0], "{kind}");
    }
    server.post_last("/v1beta1/upload", &content);
}

#[test]
#[ignore = "slow: waits 5 s"]
fn an_upload_that_continues_after_many_pauses_is_kept() {
    let content = disk::content(1, 8 << 20);
    let pod = UploadPod::new(BINARY).env("CDI_UPLOAD_RESUME_SECONDS", "3");
    let server = pod.start();
    let path = create(&server, content.len(), None);
    // Altogether five seconds of pauses.
    for part in 0..5 {
        std::thread::sleep(Duration::from_secs(1));
        let from = part * (1 << 20);
        let response = server.exchange(&patch(&path, from), &content[from..from + (1 << 20)]);
        assert_eq!(response.status, 204, "{response:?}");
    }
    let response = server.exchange(&patch(&path, 5 << 20), &content[5 << 20..]);
    assert_eq!(response.status, 204, "{response:?}");
    server.wait().assert_success("an upload with pauses");
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}

#[test]
#[ignore = "slow: waits 10 s"]
fn requests_for_the_offset_do_not_keep_another_upload_waiting() {
    let content = disk::content(1, 1 << 20);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let path = create(&server, content.len(), None);
    wait::until(
        || "kept waiting",
        || {
            server.exchange(&tus("HEAD", &path), &[]);
            let response = server.post("/v1beta1/upload", &content);
            assert!([200, 503].contains(&response.status), "{response:?}");
            response.status == 200
        },
    );
    server.wait().assert_success("another upload");
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}
