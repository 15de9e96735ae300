//! Malformed forms.

use testkit::disk;
use testkit::framing::{BOUNDARY, Part, form, form_content_type};
use testkit::https::Request;
use testkit::upload_pod::UploadPod;

use crate::BINARY;

#[test]
fn a_malformed_form_is_refused_and_the_server_stays_usable() {
    let content = disk::content(1, 1 << 20);
    let good = form(&[Part::file(&content)]);
    let no_file = form(&[Part::field("comment", "x"), Part::field("fil", "e")]);
    let content_type = form_content_type();
    let long_name = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n",
        "x".repeat(1 << 20)
    );
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
    let request = Request::post("/v1beta1/upload-form").header("Content-Type", &content_type);
    server.exchange(&request, &good).assert_uploaded();
    server.wait().assert_success("a form");
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}

#[test]
fn a_form_that_ends_within_the_file_is_refused() {
    let content = disk::content(1, 1 << 20);
    let good = form(&[Part::file(&content)]);
    let closing = b"\r\n--".len() + BOUNDARY.len() + b"--\r\n".len();
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let request =
        Request::post("/v1beta1/upload-form").header("Content-Type", &form_content_type());
    for end in [good.len() / 2, good.len() - closing, good.len() - closing + 4] {
        let response = server.exchange(&request, &good[..end]);
        assert!([400, 500].contains(&response.status), "{response:?}");
        assert_eq!(pod.data_names(), [""; 0]);
    }
    // What follows the file does not matter, not even a missing end.
    let tail = form(&[Part::file(&content), Part::field("behind", "x")]);
    server.exchange(&request, &tail[..tail.len() - 20]).assert_uploaded();
    server.wait().assert_success("a form");
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}

#[test]
fn bytes_that_resemble_the_boundary_are_part_of_the_disk() {
    let mut content = disk::content(1, 1 << 20);
    let almost = format!("\r\n--{}!", &BOUNDARY[..BOUNDARY.len() - 1]);
    for offset in (0..content.len() - 4096).step_by(3_001) {
        content[offset..offset + almost.len()].copy_from_slice(almost.as_bytes());
    }
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let request =
        Request::post("/v1beta1/upload-form").header("Content-Type", &form_content_type());
    server.exchange(&request, &form(&[Part::file(&content)])).assert_uploaded();
    server.wait().assert_success("a form");
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}

/// A parser of forms has to keep the headers of a part until they end.
#[test]
fn the_bytes_before_the_file_are_limited() {
    let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"");
    let endless = [head.as_bytes(), &vec![b'x'; 16 << 20]].concat();
    let long = vec![b'x'; 16 << 20];
    let field =
        form(&[Part::field("comment", &String::from_utf8(long).unwrap()), Part::file(b"disk")]);
    let content = disk::content(1, 8 << 20);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let request =
        Request::post("/v1beta1/upload-form").header("Content-Type", &form_content_type());
    for body in [&endless, &field] {
        let response = server.exchange(&request, body);
        assert_eq!(response.status, 400, "{response:?}");
        assert!(response.text().contains("bytes before the part named"), "{response:?}");
    }
    // The file itself may be larger than that.
    server.exchange(&request, &form(&[Part::file(&content)])).assert_uploaded();
    server.wait().assert_success("a form");
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}
