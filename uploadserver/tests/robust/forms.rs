//! Malformed forms.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::framing::{BOUNDARY, Part, form, form_content_type};
use testkit::https::{Request, Response};
use testkit::upload_pod::{Server, UploadPod};

use crate::BINARY;

fn send(server: &Server, body: &[u8]) -> Response {
    let request = Request::post("/v1beta1/upload-form");
    server.exchange(&request.header("Content-Type", &form_content_type()), body)
}

/// Sends a form that must give the disk `content`.
#[track_caller]
fn send_last(pod: &UploadPod, server: Server, body: &[u8], content: &[u8]) {
    send(&server, body).assert_uploaded();
    server.wait().assert_success("a form");
    assert!(std::fs::read(pod.disk()).or_fail("the disk") == content);
}

#[test]
fn a_malformed_form_is_refused_and_the_server_stays_usable() {
    let content = disk::content(1, 1 << 20);
    let good = form(&[Part::file(&content)]);
    let no_file = form(&[Part::field("comment", "x"), Part::field("fil", "e")]);
    let content_type = form_content_type();
    let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"");
    let long_name = format!("{head}{}\"\r\n\r\n", "x".repeat(1 << 20));
    let malformed: [(&str, Option<&str>, &[u8]); 9] = [
        ("no content type", None, &good),
        ("another content type", Some("application/octet-stream"), &good),
        ("no boundary", Some("multipart/form-data"), &good),
        ("another boundary", Some("multipart/form-data; boundary=other"), &good),
        ("no byte", Some(&content_type), b""),
        ("no form", Some(&content_type), &content),
        ("no file", Some(&content_type), &no_file),
        ("a head that breaks off", Some(&content_type), &good[..70]),
        ("a head without end", Some(&content_type), long_name.as_bytes()),
    ];
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    for path in ["/v1beta1/upload-form", "/v1beta1/upload-form-async"] {
        for (name, content_type, body) in malformed {
            let request = Request::post(path);
            let request = match content_type {
                Some(content_type) => request.header("Content-Type", content_type),
                None => request,
            };
            let response = server.exchange(&request, body);
            assert_eq!(response.status, 400, "{name}: {response:?}");
            assert_eq!(pod.data_names(), [""; 0], "{name}");
        }
    }
    // A parser of forms has to keep the headers of a part until they end.
    let endless = [head.as_bytes(), &vec![b'x'; 16 << 20]].concat();
    let long = form(&[Part::field("comment", &"x".repeat(16 << 20)), Part::file(b"disk")]);
    send(&server, &endless).assert_refused(400, "bytes in other parts than");
    send(&server, &long).assert_refused(400, "but none named \"file\"");
    // The file itself may be larger than that.
    let content = disk::content(1, 8 << 20);
    send_last(&pod, server, &form(&[Part::file(&content)]), &content);
}

#[test]
fn a_form_that_ends_within_the_file_is_refused() {
    let content = disk::content(1, 1 << 20);
    let good = form(&[Part::file(&content)]);
    let closing = b"\r\n--".len() + BOUNDARY.len() + b"--\r\n".len();
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    for end in [good.len() / 2, good.len() - closing, good.len() - closing + 4] {
        let response = send(&server, &good[..end]);
        assert!([400, 500].contains(&response.status), "{response:?}");
        assert_eq!(pod.data_names(), [""; 0]);
    }
    // What follows the file does not matter, not even a missing end.
    let tail = form(&[Part::file(&content), Part::field("behind", "x")]);
    send_last(&pod, server, &tail[..tail.len() - 20], &content);
}

#[test]
fn bytes_that_resemble_the_boundary_are_part_of_the_disk() {
    let mut content = disk::content(1, 1 << 20);
    let almost = format!("\r\n--{}!", &BOUNDARY[..BOUNDARY.len() - 1]);
    for offset in (0..content.len() - 4096).step_by(3_001) {
        content[offset..offset + almost.len()].copy_from_slice(almost.as_bytes());
    }
    let pod = UploadPod::new(BINARY);
    send_last(&pod, pod.start(), &form(&[Part::file(&content)]), &content);
}
