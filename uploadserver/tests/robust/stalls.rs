//! Clients that keep a connection and send nothing.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::disk;
use testkit::https::Request;
use testkit::upload_pod::UploadPod;
use testkit::wait;

use crate::BINARY;

#[test]
#[ignore = "alone: measures times or memory under load"]
fn silent_clients_do_not_delay_an_upload() {
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let handshakes: Vec<_> =
        (0..100).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let heads: Vec<_> = (0..100)
        .map(|index| {
            let head = Request::post("/v1beta1/upload").length(1000).bytes();
            let mut connection = server.connect();
            connection.send(&head[..index % head.len()]).unwrap();
            connection
        })
        .collect();
    let content = disk::content(1, 8 << 20);
    let started = Instant::now();
    server.post("/v1beta1/upload", &content).assert_uploaded();
    // The server must not wait for the timeouts of the silent clients.
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    // The silent clients are still connected, but must not keep the server from ending.
    server.wait().assert_success("upload");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(std::fs::read(pod.disk()).unwrap() == content);
    drop((handshakes, heads));
}

#[test]
fn a_stalled_client_frees_the_server() {
    let pod = UploadPod::new(BINARY).env("CDI_UPLOAD_STALL_SECONDS", "1");
    let server = pod.start();
    let content = disk::content(1, 1 << 20);
    for sent in [0, 700_000] {
        let stalled = server.begin_upload("/v1beta1/upload", content.len(), &content[..sent]);
        let started = Instant::now();
        server.wait_until_idle();
        let waited = started.elapsed();
        // The second is measured by the server, another process.
        assert!(waited > Duration::from_millis(500), "freed after {waited:?}");
        assert_eq!(pod.data_names(), [""; 0]);
        drop(stalled);
    }
    server.post_last("/v1beta1/upload", &content);
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}

#[test]
fn a_client_below_the_minimum_speed_is_given_up() {
    let pod = UploadPod::new(BINARY)
        .env("CDI_WORKERS_SPEED_LIMIT", "1000")
        .env("CDI_WORKERS_SPEED_TIME", "1");
    let server = pod.start();
    let content = disk::content(1, 1 << 20);
    let mut slow = server.begin_upload("/v1beta1/upload", content.len(), &content[..1]);
    let (started, mut rest) = (Instant::now(), content[1..].iter());
    // A byte every tenth of a second: never silent, but the upload would take more than a day.
    wait::until(
        || "no end of the upload",
        || {
            std::thread::sleep(Duration::from_millis(100));
            let is_taken = rest.next().is_some_and(|byte| slow.send(&[*byte]).is_ok());
            !is_taken || server.log().contains("the source is too slow: ")
        },
    );
    assert!(started.elapsed() > Duration::from_millis(900), "{:?}", started.elapsed());
    let answer = slow.response().unwrap();
    assert!(
        answer.status == 500 && answer.text().contains("the source is too slow: "),
        "{answer:?}"
    );
    server.wait_until_idle();
    server.post_last("/v1beta1/upload", &content);
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}

#[test]
#[ignore = "alone: a pause must be shorter than the time limit"]
fn a_slow_client_is_waited_for() {
    let pod = UploadPod::new(BINARY).env("CDI_UPLOAD_STALL_SECONDS", "2");
    let server = pod.start();
    let content = disk::content(1, 64 << 10);
    let (front, back) = content.split_at(content.len() - 3);
    let mut upload = server.begin_upload("/v1beta1/upload", content.len(), front);
    for byte in back {
        // Half of the stall timeout, which the server measures.
        std::thread::sleep(Duration::from_secs(1));
        upload.send(&[*byte]).unwrap();
    }
    upload.response().unwrap().assert_uploaded();
    server.wait().assert_success("a slow upload");
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}

#[test]
fn an_upload_succeeds_if_its_client_leaves_after_the_last_byte() {
    for path in ["/v1beta1/upload", "/v1beta1/upload-async"] {
        let pod = UploadPod::new(BINARY);
        let server = pod.start();
        let content = disk::content(1, 8 << 20);
        let mut upload = server.begin_upload(path, content.len(), b"");
        assert_eq!(upload.send_until_answered(&content).unwrap(), content.len());
        drop(upload);
        server.wait().assert_success("an upload without an answer");
        assert!(std::fs::read(pod.disk()).unwrap() == content);
    }
}
