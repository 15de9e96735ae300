//! Uploads by tus 1.0 that are interrupted and resumed, and the status of an upload.

use std::time::{Duration, Instant};

use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Request, Response};
use testkit::upload_proxy::PVC;

use crate::clients::Pair;

const CREATE: &str = "/v1beta1/upload-resumable";

fn tus(pair: &Pair, method: &str, path: &str) -> Request {
    Request::new(method, path)
        .header("Authorization", &pair.proxy.bearer(PVC))
        .header("Tus-Resumable", "1.0.0")
}

fn patch(pair: &Pair, path: &str, offset: usize) -> Request {
    tus(pair, "PATCH", path)
        .header("Content-Type", "application/offset+octet-stream")
        .header("Upload-Offset", &offset.to_string())
}

/// Creates an upload of `length` bytes and returns its path, which is below the requested one.
fn create(pair: &Pair, length: usize) -> String {
    let request = tus(pair, "POST", CREATE).header("Upload-Length", &length.to_string()).length(0);
    let response = pair.front.exchange(&request, b"");
    assert_eq!(response.status, 201, "{response:?}\n{}", pair.logs());
    let location = response.header("location").or_fail("a location");
    let path = location.find(CREATE).and_then(|at| location.get(at..));
    let path = path.or_fail(format!("{location} is below {CREATE}"));
    // A client that follows it must reach this proxy again.
    let upstream = pair.upload_server.address().to_string();
    assert!(!location.contains(&upstream), "{location}");
    path.to_owned()
}

fn offset(response: &Response) -> usize {
    let offset = response.header("upload-offset").and_then(|offset| offset.parse().ok());
    offset.or_fail(format!("an offset in {response:?}"))
}

#[test]
fn an_interrupted_upload_resumes() {
    let pair = Pair::new();
    let content = disk::content(7, 16 << 20);
    let path = create(&pair, content.len());
    let cut = content.len() / 10 * 9;
    let mut connection = pair.front.connect();
    connection.begin(&patch(&pair, &path, 0).length(content.len())).unwrap();
    assert_eq!(connection.send_until_answered(&content[..cut]).unwrap(), cut);
    pair.upload_server.wait_for_status(&[&format!("\"received_bytes\":{cut},")]);
    drop(connection);
    pair.upload_server.wait_for_state("waiting");
    let head = pair.front.exchange(&tus(&pair, "HEAD", &path), b"");
    assert_eq!(head.header("tus-resumable"), Some("1.0.0"), "{head:?}");
    let kept = offset(&head);
    assert!(kept <= cut && cut - kept < content.len() / 100, "{kept} of {cut}");
    let response = pair.front.exchange(&patch(&pair, &path, kept), &content[kept..]);
    assert_eq!(response.status, 204, "{response:?}\n{}", pair.logs());
    assert_eq!(offset(&response), content.len());
    pair.upload_server.wait().assert_success("resume");
    assert!(std::fs::read(pair.pod.disk()).unwrap() == content);
}

#[test]
fn a_resumable_upload_survives_the_death_of_the_proxy() {
    let mut pair = Pair::new();
    let content = disk::content(8, 8 << 20);
    let path = create(&pair, content.len());
    let half = content.len() / 2;
    let mut connection = pair.front.connect();
    connection.begin(&patch(&pair, &path, 0).length(content.len())).unwrap();
    connection.send(&content[..half]).unwrap();
    pair.upload_server.wait_for_status(&[&format!("\"received_bytes\":{half},")]);
    // The old proxy is killed when it is dropped.
    pair.front = pair.proxy.start();
    pair.upload_server.wait_for_state("waiting");
    let kept = offset(&pair.front.exchange(&tus(&pair, "HEAD", &path), b""));
    let response = pair.front.exchange(&patch(&pair, &path, kept), &content[kept..]);
    assert_eq!(response.status, 204, "{response:?}\n{}", pair.logs());
    pair.upload_server.wait().assert_success("resume");
    assert!(std::fs::read(pair.pod.disk()).unwrap() == content);
}

#[test]
fn the_status_of_an_upload_is_available_through_the_proxy() {
    let pair = Pair::new();
    let status = || {
        let request = tus(&pair, "GET", "/v1beta1/status");
        let response = pair.front.exchange(&request, b"");
        assert_eq!(response.status, 200, "{response:?}");
        serde_json::from_slice::<serde_json::Value>(&response.body).or_fail("JSON")
    };
    assert_eq!(status()["state"], "idle");
    let content = disk::content(9, 4 << 20);
    let (front, back) = content.split_at(content.len() / 2);
    let request = Request::post("/v1beta1/upload").header("Authorization", &pair.proxy.bearer(PVC));
    let mut upload = pair.front.connect();
    upload.begin(&request.length(content.len())).unwrap();
    upload.send(front).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while status()["received_bytes"] != front.len() {
        assert!(Instant::now() < deadline, "{}", status());
    }
    assert_eq!(status()["state"], "uploading");
    upload.send(back).unwrap();
    upload.response().unwrap().assert_uploaded();
}

#[test]
fn a_wrong_checksum_is_reported_through_the_proxy() {
    let pair = Pair::new();
    let content = disk::content(9, 1 << 20);
    let request = Request::post("/v1beta1/upload")
        .header("Authorization", &pair.proxy.bearer(PVC))
        .header("x-cdi-checksum", &format!("sha256:{}", "0".repeat(64)));
    let response = pair.front.exchange(&request, &content);
    assert!([400, 500].contains(&response.status), "{response:?}");
    assert!(response.text().contains("checksum"), "{response:?}");
}
