//! A client that is refused must learn why, even while it is still sending.

use testkit::certs::Offer;
use testkit::disk;
use testkit::https::Request;
use testkit::upload_pod::UploadPod;

use crate::clients::{BINARY, CLIENTS};

#[test]
fn a_client_that_is_still_sending_learns_why_it_was_refused() {
    let pod = UploadPod::new(BINARY).env("UPLOAD_IMAGE_SIZE", "1Mi");
    let server = pod.start();
    let big = vec![0xAA; 48 << 20];
    let stranger = pod.authority().client_config_for(&Offer::default());
    let stranger = stranger.unwrap();
    let content = disk::content(1, 1 << 20);
    // Ten times, because a reset overtakes the answer only by chance.
    for _ in 0..10 {
        let mut connection = server.connect_as(&stranger);
        connection
            .exchange(&Request::post("/v1beta1/upload"), &big)
            .unwrap()
            .assert_refused(401, "--cert");
        server
            .exchange(&Request::new("PATCH", "/v1beta1/upload"), &big)
            .assert_refused(404, "POST");
        let response = server.post("/v1beta1/upload", &big);
        assert_eq!(response.status, 400, "{response:?}");
        let upload = server.begin_upload("/v1beta1/upload", content.len(), &content[..100]);
        server.post("/v1beta1/upload", &big).assert_refused(503, "another upload is in progress");
        drop(upload);
        server.wait_until_idle();
    }
    server.post_last("/v1beta1/upload", &content);
}

#[test]
#[ignore = "server: python3-requests"]
fn curl_and_requests_show_why_they_were_refused() {
    let folder = tempfile::tempdir().unwrap();
    let big = folder.path().join("big");
    std::fs::write(&big, disk::content(1, 24 << 20)).unwrap();
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let _upload = server.begin_upload("/v1beta1/upload", 1 << 20, &[1; 100]);
    for (client, send, path) in CLIENTS {
        // This client is slow on purpose, and would send for seconds after the answer.
        if client == "--limit-rate" {
            continue;
        }
        let status = send.send(&pod, &server, &format!("/v1beta1/{path}"), &big);
        assert_eq!(status, "503", "{client}");
    }
}

/// After a refused request whose body was complete, the connection can be reused.
#[test]
fn a_connection_can_be_reused_after_a_failed_upload() {
    let pod = UploadPod::new(BINARY).env("UPLOAD_IMAGE_SIZE", "1Mi");
    let server = pod.start();
    let mut connection = server.connect();
    let content = disk::content(1, 1 << 20);
    for _ in 0..3 {
        let response =
            connection.exchange(&Request::post("/v1beta1/upload").length(0), &[]).unwrap();
        assert_eq!(response.status, 400, "{response:?}");
        assert_ne!(response.header("connection"), Some("close"), "{response:?}");
        let health = connection.exchange(&Request::new("GET", "/healthz"), &[]);
        health.unwrap().assert(200, "OK");
    }
    let response = connection.exchange(&Request::post("/v1beta1/upload"), &content);
    response.unwrap().assert_uploaded();
    server.wait().assert_success("upload");
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}
