//! What the protocols define besides resuming: creation, pieces, termination and refusals.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};

use rustix::process::Signal;
use stream::digest::{DigestAlgorithm, RunningDigest};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::Request;
use testkit::upload_pod::UploadPod;
use testkit::wait;
use tokio_util::sync::CancellationToken;

use crate::resume::{
    BINARY, CREATE, begin_deferred, checksum, create, location, patch, send_and_cut, tus,
};

#[test]
fn complete_pieces_are_answered_with_the_offset() {
    let bytes = disk::content(1, 5 << 20);
    // The first piece may come with the creation.
    for first in [0, 1 << 20] {
        let pod = UploadPod::new(BINARY);
        let server = pod.start();
        let request = tus("POST", CREATE)
            .header("Upload-Length", &bytes.len().to_string())
            .header("Content-Type", "application/offset+octet-stream");
        let response = server.exchange(&request, &bytes[..first]);
        let path = location(&response);
        let offset = response.header("upload-offset").map(str::to_owned);
        assert!(first == 0 || offset == Some(first.to_string()), "{response:?}");
        let mut connection = server.connect();
        let mut sent = first;
        for piece in bytes[first..].chunks(1 << 20) {
            let response = connection.exchange(&patch(&path, sent), piece).unwrap();
            sent += piece.len();
            assert_eq!(response.status, 204, "{response:?}");
            assert_eq!(response.header("upload-offset"), Some(&*sent.to_string()));
        }
        server.wait().assert_success("pieces");
        assert!(std::fs::read(pod.disk()).unwrap() == bytes);
    }
}

#[test]
fn a_wrong_checksum_or_a_bad_image_is_reported_at_the_end() {
    let bytes = disk::content(1, 1 << 20);
    let gzip = testkit::tools::filter("gzip", ["-c"], &bytes);
    let pod = UploadPod::new(BINARY).env("UPLOAD_IMAGE_SIZE", "1Mi");
    let server = pod.start();
    for (body, checksum_of, status) in [
        (&bytes[..], Some(&b"another"[..]), 400),
        (&gzip[..gzip.len() / 2], None, 400),
        (&disk::content(1, 2 << 20), None, 400),
    ] {
        let path = create(&server, body.len(), checksum_of.map(checksum).as_deref());
        let response = server.exchange(&patch(&path, 0), body);
        assert_eq!(response.status, status, "{response:?}");
        assert!(response.text().starts_with("Saving stream failed: "), "{response:?}");
        server.wait_until_idle();
        assert_eq!(pod.data_names(), [""; 0]);
    }
    server.post_last("/v1beta1/upload", &bytes);
}

#[test]
fn malformed_requests_are_refused_as_tus_requires() {
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let options = server.exchange(&Request::new("OPTIONS", CREATE), &[]);
    assert_eq!(options.status, 204, "{options:?}");
    assert_eq!(options.header("tus-version"), Some("1.0.0"));
    assert_eq!(options.header("tus-resumable"), Some("1.0.0"));
    let extensions = options.header("tus-extension").unwrap();
    for extension in ["creation", "creation-with-upload", "creation-defer-length", "termination"] {
        assert!(extensions.split(',').any(|e| e.trim() == extension), "{extensions}");
    }
    for (name, value) in [("Tus-Resumable", "0.2.2"), ("Upload-Complete", "?0")] {
        let other = Request::post(CREATE).header(name, value).header("Upload-Length", "10");
        let response = server.exchange(&other, &[]);
        assert_eq!(response.status, 412, "{response:?}");
        assert_eq!(response.header("tus-version"), Some("1.0.0"));
    }
    for length in ["-1", "x", "99999999999999999999999"] {
        let request = tus("POST", CREATE).header("Upload-Length", length).length(0);
        assert_eq!(server.exchange(&request, &[]).status, 400, "{length}");
    }
    let path = create(&server, 10, None);
    for method in ["HEAD", "PATCH", "DELETE"] {
        let response =
            server.exchange(&Request::new(method, &path).header("Upload-Offset", "0"), &[]);
        assert_eq!(response.status, 412, "{method}: {response:?}");
        assert_eq!(response.header("tus-version"), Some("1.0.0"), "{method}");
    }
    let other_type = tus("PATCH", &path)
        .header("Content-Type", "application/octet-stream")
        .header("Upload-Offset", "0");
    assert_eq!(server.exchange(&other_type, b"x").status, 415);
    // A checksum that would not be verified.
    for name in ["Content-Digest", "Upload-Checksum"] {
        let response = server.exchange(&patch(&path, 0).header(name, "sha-256=:AAAA:"), b"x");
        assert_eq!(response.status, 400, "{response:?}");
        assert!(response.text().contains("when the upload begins"), "{response:?}");
    }
    // More than the announced length.
    let response = server.exchange(&patch(&path, 0), &[b'x'; 11]);
    assert!((400..500).contains(&response.status), "{response:?}");
    let unknown = server.exchange(&tus("HEAD", &format!("{CREATE}/unknown")), &[]);
    assert!([404, 410].contains(&unknown.status), "{unknown:?}");
    // A client without a certificate cannot create, query or end an upload.
    let stranger = pod.authority().client_config_for(&testkit::certs::Offer::default()).unwrap();
    for request in [
        tus("POST", CREATE).header("Upload-Length", "10"),
        tus("HEAD", &path),
        patch(&path, 0),
        tus("DELETE", &path),
    ] {
        let response = server.connect_as(&stranger).exchange(&request, &[]).unwrap();
        assert_eq!(response.status, 401, "{response:?}");
    }
}

#[test]
fn a_deferred_length_may_be_set_once() {
    let bytes = disk::content(1, 3 << 20);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let other = tus("POST", CREATE).header("Upload-Defer-Length", "0");
    for wrong in [tus("POST", CREATE), other, begin_deferred().header("Upload-Length", "9")] {
        let response = server.exchange(&wrong, &[]);
        assert_eq!(response.status, 400, "{response:?}");
    }
    let created = server.exchange(&begin_deferred(), &[]);
    let path = location(&created);
    assert_eq!(created.header("upload-defer-length"), Some("1"), "{created:?}");
    assert_eq!(server.exchange(&patch(&path, 0), &bytes[..1 << 20]).status, 204);
    let head = server.exchange(&tus("HEAD", &path), &[]);
    assert_eq!(head.status, 200, "{head:?}");
    assert_eq!(head.header("upload-offset"), Some("1048576"), "{head:?}");
    assert_eq!(head.header("upload-defer-length"), Some("1"), "{head:?}");
    assert_eq!(head.header("upload-length"), None, "{head:?}");
    let with_length =
        |length: usize| patch(&path, 1 << 20).header("Upload-Length", &length.to_string());
    for (length, status) in [(0, 400), ((1 << 20) - 1, 400), (1 << 51, 413)] {
        let response = server.exchange(&with_length(length).length(0), &[]);
        assert_eq!(response.status, status, "{length}: {response:?}");
    }
    // Less than the bytes that are sent.
    let response = server.exchange(&with_length(2 << 20), &bytes[1 << 20..]);
    assert_eq!(response.status, 413, "{response:?}");
    // A refused request has not set the length.
    assert_eq!(server.exchange(&with_length(bytes.len()).length(0), &[]).status, 204);
    let head = server.exchange(&tus("HEAD", &path), &[]);
    assert_eq!(head.header("upload-length"), Some("3145728"), "{head:?}");
    assert_eq!(head.header("upload-defer-length"), None, "{head:?}");
    for other in [bytes.len() - 1, bytes.len() + 1] {
        let response = server.exchange(&with_length(other).length(0), &[]);
        assert_eq!(response.status, 400, "{other}: {response:?}");
    }
    let response = server.exchange(&with_length(bytes.len()), &bytes[1 << 20..]);
    assert_eq!(response.status, 204, "{response:?}");
    assert_eq!(response.header("upload-offset"), Some("3145728"), "{response:?}");
    server.wait().assert_success("a length that came later");
    assert!(std::fs::read(pod.disk()).unwrap() == bytes);
}

/// A client considers an upload complete when its offset is its length, also if a HEAD tells it
/// so.
#[test]
fn the_last_byte_completes_an_upload_whose_client_has_left() {
    let bytes = disk::content(1, 1 << 20);
    for (promised, is_kept) in [(&bytes[..], true), (b"another", false)] {
        let pod = UploadPod::new(BINARY);
        let server = pod.start();
        let path = create(&server, bytes.len(), Some(&checksum(promised)));
        let mut connection = server.connect();
        let request = patch(&path, 0).chunked();
        connection.begin(&request).unwrap();
        let chunk = [&b"100000\r\n"[..], &bytes, b"\r\n"].concat();
        // The last chunk, which would end the body, is not sent.
        connection.send(&chunk).unwrap();
        server.wait_for_status(&["\"received_bytes\":1048576,"]);
        drop(connection);
        if is_kept {
            server.wait().assert_success("all bytes");
            assert!(std::fs::read(pod.disk()).unwrap() == bytes);
        } else {
            server.wait_until_idle();
            assert_eq!(server.exchange(&tus("HEAD", &path), &[]).status, 410);
            assert_eq!(pod.data_names(), [""; 0]);
        }
    }
}

#[test]
fn an_upload_of_unknown_length_may_end_with_a_checksum() {
    let bytes = disk::content(1, 3 << 20);
    let crc = |bytes: &[u8]| {
        let mut digest = RunningDigest::new(DigestAlgorithm::Crc64Nvme);
        digest.update(bytes);
        digest.finish_digest()
    };
    let right = crc(&bytes);
    for (stated, sentence) in [
        (Some(right.as_str()), None),
        (Some(&*crc(b"other")), Some("checksum mismatch")),
        (Some(&*checksum(&bytes)), Some("crc64nvme was announced, but sha256 was sent")),
        (None, Some("the announced checksum was not sent")),
    ] {
        let pod = UploadPod::new(BINARY);
        let server = pod.start();
        let request = begin_deferred().header("x-cdi-checksum", "crc64nvme");
        let path = location(&server.exchange(&request, &[]));
        for (from, to) in [(0, 1 << 20), (1 << 20, bytes.len())] {
            let taken = server.exchange(&patch(&path, from), &bytes[from..to]);
            assert_eq!(taken.status, 204, "{taken:?}");
        }
        let last = patch(&path, bytes.len()).header("Upload-Length", &bytes.len().to_string());
        let last = last.length(0);
        let last = match stated {
            Some(stated) => last.header("x-cdi-checksum", stated),
            None => last,
        };
        let response = server.exchange(&last, &[]);
        match sentence {
            None => {
                assert_eq!(response.status, 204, "{response:?}");
                server.wait().assert_success("the upload");
                assert!(std::fs::read(pod.disk()).unwrap() == bytes);
            }
            Some(sentence) => {
                assert_eq!(response.status, 400, "{response:?}");
                assert!(response.text().contains(sentence), "{response:?}");
                assert!(!pod.disk().exists(), "nothing is kept");
            }
        }
    }
}

#[test]
fn the_disk_of_a_killed_server_is_kept_as_far_as_the_marks_of_the_client_match() {
    const MIB: usize = 1 << 20;
    let bytes = disk::content(7, 9 << 20);
    let pod = UploadPod::new(BINARY);
    let left = [&vec![0; MIB], &bytes[MIB..6 * MIB], &[1; 9]].concat();
    std::fs::write(pod.disk(), left).unwrap();
    std::fs::set_permissions(pod.disk(), Permissions::from_mode(0o600)).unwrap();
    let marks = marks_of(&bytes, &[2, 5, 8].map(|end| end << 20));
    let server = pod.start();
    let backwards = [&*marks[1], &*marks[0]].join(",");
    for wrong in ["", "x", "4194304:zz", &*backwards, &vec![&*marks[0]; 200].join(",")] {
        let response = server.exchange(&begin_with(wrong), &[]);
        assert_eq!(response.status, 400, "{wrong}: {response:?}");
        assert!(response.text().contains("x-cdi-marks"), "{response:?}");
    }
    let request =
        tus("POST", CREATE).header("Upload-Length", "9437184").header("x-cdi-marks", &marks[0]);
    let response = server.exchange(&request.length(0), &[]);
    assert_eq!(response.status, 400, "{response:?}");
    assert!(response.text().contains("x-cdi-marks"), "{response:?}");
    let response = server.exchange(&begin_with(&marks.join(", ")), &[]);
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.header("x-cdi-kept"), Some("5242880"));
    let path = location(&response);
    let response = server.exchange(&tus("HEAD", &path), &[]);
    assert_eq!(response.header("x-cdi-kept"), Some("5242880"), "{response:?}");
    let stream = [&bytes[..MIB], &bytes[5 * MIB..]].concat();
    let request = patch(&path, 0).header("Upload-Length", &stream.len().to_string());
    let response = server.exchange(&request, &stream);
    assert_eq!(response.status, 204, "{response:?}");
    server.wait().assert_success("what was left");
    assert!(std::fs::read(pod.disk()).unwrap() == bytes);
}

/// A drained node and `kubectl delete pod` end the pod with SIGTERM.
#[test]
fn the_disk_of_a_raw_upload_survives_the_end_of_its_pod() {
    const MIB: usize = 1 << 20;
    let bytes = disk::content(8, 9 << 20);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let path = create(&server, bytes.len(), None);
    send_and_cut(&server, &path, &bytes, 0, 6 * MIB);
    let written = || {
        let disk = std::fs::read(pod.disk()).unwrap_or_default();
        disk.get(MIB..5 * MIB).is_some_and(|part| part == &bytes[MIB..5 * MIB])
    };
    wait::until(|| "5 MiB are not on the disk", written);
    server.signal(Signal::TERM);
    let finished = server.wait();
    assert_eq!(finished.code(), 143, "{}", finished.stderr);
    let left = std::fs::read(pod.disk()).or_fail("the disk");
    assert!(left.iter().take(MIB).all(|byte| *byte == 0), "it looks complete");
    assert_eq!(std::fs::metadata(pod.disk()).unwrap().permissions().mode() & 0o777, 0o600);
    let mark = marks_of(&bytes, &[5 * MIB as u64]);
    let response = pod.start().exchange(&begin_with(&mark.join(",")), &[]);
    assert_eq!(response.header("x-cdi-kept"), Some("5242880"), "{response:?}");
}

/// The checksums of the prefixes of `bytes` that end at `ends`.
fn marks_of(bytes: &[u8], ends: &[u64]) -> Vec<String> {
    let folder = tempfile::tempdir().or_fail("a folder");
    disk::write_sparse(&folder.path().join("image"), bytes);
    let image = File::open(folder.path().join("image")).or_fail("an image");
    let marks = stream::marks::marks_of(&image, ends, &CancellationToken::new()).or_fail("marks");
    marks.iter().map(stream::prefix_crc::PrefixCrc::to_string).collect()
}

/// Leaves a disk like a killed server.
fn leave(pod: &UploadPod, fill: impl FnOnce(&File)) {
    let file = File::create(pod.disk()).or_fail("the disk");
    fill(&file);
    file.set_permissions(Permissions::from_mode(0o600)).or_fail("the disk");
}

fn begin_with(marks: &str) -> Request {
    begin_deferred().header("x-cdi-marks", marks)
}

#[test]
fn a_leftover_disk_with_a_hole_of_tebibytes_is_checked_at_once() {
    const TIB: u64 = 1 << 40;
    let pod = UploadPod::new(BINARY);
    leave(&pod, |file| {
        file.write_all_at(b"data", 3 << 20).unwrap();
        file.set_len(8 * TIB).unwrap();
    });
    let file = File::open(pod.disk()).unwrap();
    let marks = stream::marks::marks_of(&file, &[7 * TIB], &CancellationToken::new()).unwrap();
    let server = pod.start();
    let response = server.exchange(&begin_with(&marks[0].to_string()), &[]);
    // A server that has not finished its check after 20 s would answer `later`.
    assert_eq!(response.header("x-cdi-kept"), Some(&*(7 * TIB).to_string()));
    let path = location(&response);
    assert_eq!(server.exchange(&tus("DELETE", &path), &[]).status, 204);
    server.wait_until_idle();
}

#[test]
#[ignore = "tools: strace"]
fn an_upload_can_be_terminated_while_a_leftover_disk_is_checked() {
    const READS: usize = 256;
    let pod = UploadPod::new(BINARY);
    leave(&pod, |file| {
        file.write_all_at(&disk::content(5, READS as u64 * (256 << 10)), 0).unwrap();
    });
    // To read all of it would take 51 s.
    let reads = pod.path("reads");
    let mut options =
        ["-f", "--seccomp-bpf", "-qq", "-e", "trace=preadv"].map(OsString::from).to_vec();
    options.extend(["-e", "inject=preadv:delay_enter=200000", "-o"].map(OsString::from));
    options.push(reads.clone().into());
    let server = pod.serve(pod.program().under("strace", options));
    let mut looking = server.connect();
    let begin = begin_with(&format!("{}:0123456789abcdef", READS * (256 << 10)));
    looking.begin(&begin).unwrap();
    server.wait_for_status(&["\"resume\""]);
    let status = server.exchange(&Request::new("GET", "/v1beta1/status"), &[]).text();
    let path = &status[status.find(CREATE).unwrap()..];
    let path = &path[..path.find('"').unwrap()];
    wait::until(
        || "nothing is read",
        || std::fs::read_to_string(&reads).is_ok_and(|text| text.contains("preadv")),
    );
    assert_eq!(server.exchange(&tus("DELETE", path), &[]).status, 204);
    server.wait_until_idle();
    let read = std::fs::read_to_string(&reads).unwrap().matches("preadv").count();
    assert!((1..READS / 2).contains(&read), "{read} reads of {READS}");
    // The disk of an earlier process stays, because the next upload may match it.
    assert!(pod.disk().exists());
}
