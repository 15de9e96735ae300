//! Headers that change what a body is. Unsupported ones are refused before a byte of the body is
//! read.

use testkit::disk;
use testkit::framing::{Part, form, form_content_type};
use testkit::https::Request;
use testkit::tools;

use crate::contract::failures::assert_usable;
use crate::contract::{MIB, pod};

/// Largest accepted length of a body.
const MOST: u64 = 1 << 50;

#[test]
fn a_part_of_a_file_is_refused() {
    let pod = pod(&[]);
    let server = pod.start();
    for (path, range) in [
        ("/v1beta1/upload", "bytes 0-4095/1048576"),
        ("/v1alpha1/upload-async", "bytes 0-4095/*"),
        ("/v1beta1/upload-form", "bytes 0-4095/4096"),
        ("/v1beta1/upload-archive", "nonsense"),
    ] {
        let request = Request::post(path)
            .header("Content-Range", range)
            .header("Content-Type", &form_content_type());
        let response = server.exchange(&request, &[1; 4096]);
        assert_eq!(response.status, 400, "{path}: {response:?}");
        assert!(response.text().contains("Content-Range says that this is a part"), "{response:?}");
    }
    // A method that the path does not take is refused first.
    let get = Request::new("GET", "/v1beta1/upload").header("Content-Range", "bytes 0-3/4");
    server.exchange(&get, b"abcd").assert_refused(404, "POST");
    assert!(pod.data_names().is_empty());
    assert_usable(&pod, server);
}

#[test]
fn an_unsupported_coding_is_refused_with_the_supported_ones() {
    let pod = pod(&[]);
    let server = pod.start();
    let form = form(&[Part::file(&[1; 4096])]);
    let clone = ("x-cdi-content-type", "blockdevice-clone");
    let form_type = ("Content-Type", &*form_content_type());
    let images = "gzip, x-gzip, zstd, bzip2, xz, identity";
    for (path, coding, more, body, accepted) in [
        ("/v1beta1/upload", "br", ("x-a", "b"), &[1; 4096][..], images),
        ("/v1beta1/upload-async", "gzip, deflate", ("x-a", "b"), &[1; 4096], images),
        ("/v1beta1/upload-archive", "aws-chunked", ("x-a", "b"), &[1; 4096], images),
        ("/v1beta1/upload-form", "gzip", form_type, &form, "identity"),
        ("/v1beta1/upload", "gzip", clone, &[1; 4096], "identity"),
    ] {
        let request = Request::post(path).header("Content-Encoding", coding).header(more.0, more.1);
        let response = server.exchange(&request, body);
        assert_eq!(response.status, 415, "{path} {coding}: {response:?}");
        assert_eq!(response.header("accept-encoding"), Some(accepted), "{path} {coding}");
        assert!(response.text().contains("is not supported"), "{response:?}");
    }
    assert!(pod.data_names().is_empty());
    // A supported coding is undone, as without the header.
    let content = disk::content(1, MIB);
    let request = Request::post("/v1beta1/upload").header("Content-Encoding", "gzip");
    let gzip = tools::filter("gzip", ["-c"], &content);
    server.exchange(&request, &gzip).assert_uploaded();
    server.wait().assert_success("a coding that is understood");
    assert!(std::fs::read(pod.disk()).unwrap() == content);
}

#[test]
fn a_length_above_the_limit_is_refused_with_both_numbers() {
    let pod = pod(&[]);
    let server = pod.start();
    for length in [MOST + 1, i64::MAX as u64, 1 << 63, u64::MAX - 2] {
        let sentence = format!("{length} bytes is too large: the limit is {MOST}");
        for path in [
            "/v1beta1/upload",
            "/v1beta1/upload-async",
            "/v1beta1/upload-form",
            "/v1beta1/upload-archive",
        ] {
            let request = Request::post(path)
                .header("Content-Length", &length.to_string())
                .header("Content-Type", &form_content_type());
            // The answer must come without the body.
            let response = server.exchange(&request, &[]);
            assert_eq!(response.status, 413, "{path} {length}: {response:?}");
            assert!(response.text().contains(&sentence), "{response:?}");
        }
        let create = Request::post("/v1beta1/upload-resumable")
            .header("Tus-Resumable", "1.0.0")
            .header("Upload-Length", &length.to_string());
        let response = server.exchange(&create.length(0), &[]);
        assert_eq!(response.status, 413, "{length}: {response:?}");
        assert!(response.text().contains(&sentence), "{response:?}");
    }
    let options = server.exchange(&Request::new("OPTIONS", "/v1beta1/upload-resumable"), &[]);
    assert_eq!(options.header("tus-max-size"), Some(&*MOST.to_string()));
    assert_usable(&pod, server);
}
