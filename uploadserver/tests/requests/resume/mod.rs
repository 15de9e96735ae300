//! Uploads that are interrupted and resumed: tus 1.0.

mod protocol;
mod sessions;

use std::time::{Duration, Instant};

use crate::BINARY;
use sha2::Digest;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Connection, Request, Response};
use testkit::images::{Compression, Content, Image, Spec};
use testkit::upload_pod::{Server, UploadPod};

const CREATE: &str = "/v1beta1/upload-resumable";

fn tus(method: &str, path: &str) -> Request {
    Request::new(method, path).header("Tus-Resumable", "1.0.0")
}

fn patch(path: &str, offset: usize) -> Request {
    tus("PATCH", path)
        .header("Content-Type", "application/offset+octet-stream")
        .header("Upload-Offset", &offset.to_string())
}

/// Creates an upload of `length` bytes and returns the path of its URL.
fn create(server: &Server, length: usize, checksum: Option<&str>) -> String {
    let request = tus("POST", CREATE).header("Upload-Length", &length.to_string()).length(0);
    let request = match checksum {
        Some(checksum) => request.header("x-cdi-checksum", checksum),
        None => request,
    };
    location(&server.exchange(&request, &[]))
}

/// Returns the request that creates an upload whose length comes later.
fn begin_deferred() -> Request {
    tus("POST", CREATE).header("Upload-Defer-Length", "1").length(0)
}

fn location(response: &Response) -> String {
    assert_eq!(response.status, 201, "{response:?}");
    let location = response.header("location").or_fail("a location");
    let path = location.find(CREATE).and_then(|at| location.get(at..));
    let path = path.or_fail(format!("{location} is below {CREATE}"));
    assert!(path.len() > CREATE.len() + 1, "{location}");
    path.to_owned()
}

/// Returns the offset that the server reports.
fn offset(server: &Server, path: &str) -> usize {
    let head = server.exchange(&tus("HEAD", path), &[]);
    assert!([200, 204].contains(&head.status), "{head:?}");
    assert_eq!(head.header("cache-control"), Some("no-store"), "{head:?}");
    let offset = head.header("upload-offset").and_then(|offset| offset.parse().ok());
    offset.or_fail(format!("an offset in {head:?}"))
}

/// Sends a part and disconnects. Returns when the server has received all of it and has noticed
/// the disconnect, so that no bytes are lost in the network.
fn send_and_cut(server: &Server, path: &str, whole: &[u8], from: usize, to: usize) {
    let mut connection: Connection = server.connect();
    let request = patch(path, from).length(whole.len() - from);
    connection.begin(&request).or_fail("send the head");
    // An answer that is left unread would reset the connection.
    let part = &whole[from..to];
    let sent = connection.send_until_answered(part).or_fail("send a part");
    assert_eq!(sent, part.len(), "the server answered early: {:?}", connection.response());
    // If a socket is closed before the other end has read everything, sent bytes can be lost.
    server.wait_for_status(&[&format!("\"received_bytes\":{to},")]);
    drop(connection);
    server.wait_for_state("waiting");
}

fn image(folder: &std::path::Path) -> Image {
    let spec = Spec {
        compression: Compression::Zstd,
        virtual_size: 48 << 20,
        ..Spec::new(Content::Dense)
    };
    spec.build(folder, "image")
}

fn checksum(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_upload_that_is_cut_repeats_less_than_a_percent() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    for (object, cuts, parts) in [(&image.raw, 9..=9, 10), (&image.qcow2, 1..=20, 21)] {
        let bytes = std::fs::read(object).unwrap();
        let pod = UploadPod::new(BINARY);
        let server = pod.start();
        let path = create(&server, bytes.len(), Some(&checksum(&bytes)));
        let mut at = 0;
        for cut in cuts.map(|cut| bytes.len() * cut / parts) {
            send_and_cut(&server, &path, &bytes, at, cut);
            at = offset(&server, &path);
            assert!(at <= cut, "the server has {at} of {cut} bytes");
            assert!(cut - at < bytes.len() / 100, "{} bytes are sent again", cut - at);
        }
        let response = server.exchange(&patch(&path, at), &bytes[at..]);
        assert_eq!(response.status, 204, "{response:?}");
        assert_eq!(response.header("upload-offset"), Some(&*bytes.len().to_string()));
        assert_eq!(response.header("tus-resumable"), Some("1.0.0"));
        server.wait().assert_success("resume");
        disk::assert_same(&pod.disk(), &image.raw, image.virtual_size, "resume");
        let uploaded = r#"{"preallocationApplied":false,"message":"Upload Complete"}"#;
        assert_eq!(pod.message().as_deref(), Some(uploaded));
    }
}

#[test]
fn a_waiting_server_reports_that_and_takes_no_other_upload() {
    let bytes = disk::content(1, 5 << 20);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let path = create(&server, bytes.len(), None);
    send_and_cut(&server, &path, &bytes, 0, 1 << 20);
    let at = offset(&server, &path);
    server.wait_for_state("waiting");
    let status = server.exchange(&Request::new("GET", "/v1beta1/status"), &[]);
    let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
    assert_eq!(status["state"], "waiting", "{status}");
    assert_eq!(status["received_bytes"], at, "{status}");
    assert_eq!(status["total_bytes"], bytes.len(), "{status}");
    server.post("/v1beta1/upload", b"x").assert_refused(503, "another upload is in progress");
    let second = tus("POST", CREATE).header("Upload-Length", "100").length(0);
    assert_eq!(server.exchange(&second, &[]).status, 503);
    // A wrong offset changes nothing.
    for wrong in [at - 1, at + 1, 0, bytes.len()] {
        let response = server.exchange(&patch(&path, wrong), &bytes[wrong.min(bytes.len())..]);
        assert_eq!(response.status, 409, "{response:?}");
    }
    assert_eq!(offset(&server, &path), at);
    assert_eq!(server.exchange(&patch(&path, at), &bytes[at..]).status, 204);
    server.wait().assert_success("resume");
    assert!(std::fs::read(pod.disk()).unwrap() == bytes);
}

#[test]
fn an_upload_that_is_terminated_or_not_resumed_frees_the_server() {
    let bytes = disk::content(1, 1 << 20);
    for is_terminated in [true, false] {
        let pod = UploadPod::new(BINARY).env("CDI_UPLOAD_RESUME_SECONDS", "1");
        let server = pod.start();
        let path = create(&server, bytes.len(), None);
        send_and_cut(&server, &path, &bytes, 0, 500_000);
        let started = Instant::now();
        if is_terminated {
            assert_eq!(server.exchange(&tus("DELETE", &path), &[]).status, 204);
        }
        server.wait_until_idle();
        // The second is measured by the server, another process.
        let waited = started.elapsed();
        assert!(is_terminated || waited > Duration::from_millis(500), "{waited:?}");
        assert_eq!(pod.data_names(), [""; 0]);
        for gone in [tus("HEAD", &path), patch(&path, 0)] {
            let gone = server.exchange(&gone, &[]).status;
            assert!([404, 410].contains(&gone), "{gone}");
        }
        server.post_last("/v1beta1/upload", &bytes);
    }
}

#[test]
fn sigterm_ends_a_waiting_server() {
    let bytes = disk::content(1, 1 << 20);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let path = create(&server, bytes.len(), None);
    send_and_cut(&server, &path, &bytes, 0, 500_000);
    server.wait_for_line("waits at byte");
    server.signal(rustix::process::Signal::TERM);
    let finished = server.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
    assert_eq!(pod.data_names(), [""; 0]);
}

/// Begins to send `whole`, and stops after the server has received 1 MiB.
fn hanging_upload(server: &Server, path: &str, whole: &[u8]) -> Connection {
    let mut hanging = server.connect();
    hanging.begin(&patch(path, 0).length(whole.len())).or_fail("the server");
    hanging.send_until_answered(&whole[..1 << 20]).or_fail("the server");
    server.wait_for_status(&["\"received_bytes\":1048576,"]);
    hanging
}

/// The connection of a client that lost its network may look alive for minutes.
#[test]
fn a_second_connection_takes_over_from_a_hanging_one() {
    let bytes = disk::content(1, 4 << 20);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let path = create(&server, bytes.len(), None);
    let mut hanging = hanging_upload(&server, &path, &bytes);
    let at = offset(&server, &path);
    assert!(at <= 1 << 20, "{at}");
    // Later bytes of the first request do not count.
    hanging.send_until_answered(&bytes[..1 << 20]).ok();
    let response = server.exchange(&patch(&path, at), &bytes[at..]);
    assert_eq!(response.status, 204, "{response:?}");
    server.wait().assert_success("take over");
    assert!(std::fs::read(pod.disk()).unwrap() == bytes);
}

/// A request for the offset takes the upload over, and its client may disappear as well.
#[test]
fn an_upload_ends_if_the_client_that_took_it_over_leaves() {
    let bytes = disk::content(1, 4 << 20);
    let pod = UploadPod::new(BINARY).env("CDI_UPLOAD_RESUME_SECONDS", "1");
    let server = pod.start();
    let path = create(&server, bytes.len(), None);
    let mut hanging = hanging_upload(&server, &path, &bytes);
    let mut asking = server.connect();
    asking.begin(&tus("HEAD", &path)).unwrap();
    // The first request must end.
    hanging.response().unwrap().assert(204, "");
    drop(asking);
    server.wait_until_idle();
    server.post_last("/v1beta1/upload", &bytes);
}
