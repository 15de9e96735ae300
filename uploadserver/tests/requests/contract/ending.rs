//! How the process ends: after an upload, at the deadline, and by SIGTERM.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::disk;
use testkit::framing::{Part, form, form_content_type};
use testkit::https::Request;
use testkit::images::{Compression, Content, Spec};
use testkit::loopdev::{DIRT, LoopDevice};
use testkit::process::Finished;
use testkit::tools;
use testkit::upload_pod::UploadPod;

use crate::contract::{MIB, assert_logged, pod};

const UPLOADED: &str = r#"{"preallocationApplied":false,"message":"Upload Complete"}"#;
const PREALLOCATED: &str = r#"{"preallocationApplied":true,"message":"Upload Complete"}"#;
const DEADLINE_PASSED: &str = r#"{"deadlinePassed":true,"message":"Deadline Passed"}"#;

/// Exit code of a process that ends because of SIGTERM (128 + 15).
const TERMINATED: i32 = 143;

/// Returns the time so many seconds from now, as in RFC 3339.
fn in_seconds(seconds: i32) -> String {
    let when = format!("{seconds:+} seconds");
    tools::run("date", ["-u", "-d", &when, "+%FT%TZ"]).trim().to_owned()
}

#[track_caller]
fn assert_ended(finished: &Finished, pod: &UploadPod, code: i32, message: Option<&str>) {
    assert_eq!((finished.code(), pod.message().as_deref()), (code, message), "{}", finished.stderr);
    assert!(!finished.crashed(), "{}", finished.stderr);
}

#[test]
fn an_upload_is_logged_and_reported_step_by_step() {
    let pod = pod(&[("LISTEN_ADDRESS", "127.0.0.1")]);
    let server = pod.start();
    let request = Request::post("/v1beta1/upload").header("x-cdi-content-type", "whatever");
    let content = disk::content(1, MIB);
    server.exchange(&request, &content).assert_uploaded();
    let finished = server.wait();
    assert_ended(&finished, &pod, 0, Some(UPLOADED));
    let wrote = format!("Wrote data to {}", pod.disk().display());
    assert_logged(
        &finished.stderr,
        &[
            "] Running server on 127.0.0.1:",
            "] Content type header is \"whatever\"",
            &wrote,
            "] Shutting down http server after successful upload",
            "] UploadServer successfully exited",
            UPLOADED,
        ],
    );
    let mode = |path: &Path| {
        std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions())
    };
    assert_eq!(mode(&pod.disk()) & 0o7777, 0o660);
    assert_eq!(mode(&pod.path("dev/termination-log")) & 0o777, 0o600);
}

#[test]
#[ignore = "tools: qemu-img"]
fn an_asynchronous_upload_answers_before_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) };
    let image = spec.build(folder.path(), "image");
    let pod = pod(&[]);
    let body = form(&[
        Part::field("comment", "not the disk"),
        Part::file(&std::fs::read(&image.qcow2).unwrap()),
        Part::field("behind", "ignored"),
    ]);
    let server = pod.start();
    let request =
        Request::post("/v1alpha1/upload-form-async").header("Content-Type", &form_content_type());
    server.exchange(&request, &body).assert_uploaded();
    let finished = server.wait();
    assert_ended(&finished, &pod, 0, Some(UPLOADED));
    assert_logged(
        &finished.stderr,
        &[
            "Ignoring part comment",
            "Returning success to caller, continue processing in background",
            "UploadServer successfully exited",
        ],
    );
    disk::assert_same(&pod.disk(), &image.raw, image.virtual_size, "form-async");
}

#[test]
fn a_disk_grows_to_the_usable_size_and_replaces_a_stale_one() {
    // 11 MiB less 6 %, down to whole MiB: 10 MiB.
    let env = [("UPLOAD_IMAGE_SIZE", "11Mi"), ("FILESYSTEM_OVERHEAD", "0.06")];
    for path in ["/v1beta1/upload", "/v1beta1/upload-async"] {
        let pod = pod(&env);
        // Left by an earlier container.
        std::fs::write(pod.disk(), vec![0xEE; 12 << 20]).unwrap();
        let content = disk::content(1, 3 * MIB);
        pod.start().post_last(path, &content);
        let disk = std::fs::read(pod.disk()).unwrap();
        assert_eq!(disk.len() as u64, 10 * MIB);
        assert!(disk.starts_with(&content) && disk[content.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn preallocation_is_done_and_reported() {
    let request =
        Request::post("/v1beta1/upload-form").header("Content-Type", &form_content_type());
    for (value, message) in [("true", PREALLOCATED), ("", UPLOADED), ("yes", UPLOADED)] {
        let pod = pod(&[("PREALLOCATION", value)]);
        let server = pod.start();
        server.exchange(&request, &form(&[Part::file(&[0; 4 << 20])])).assert_uploaded();
        assert_ended(&server.wait(), &pod, 0, Some(message));
        let is_allocated = disk::allocated_bytes(&pod.disk()) >= 4 * MIB;
        assert_eq!(is_allocated, message == PREALLOCATED, "{value:?}");
    }
}

#[test]
fn a_deadline_without_an_upload_ends_the_server() {
    for deadline in [in_seconds(2), in_seconds(-60)] {
        let pod = pod(&[("DEADLINE", &deadline)]);
        let finished = pod.program().start().wait();
        assert_ended(&finished, &pod, 0, Some(DEADLINE_PASSED));
        let lines = ["deadline exceeded, shutting down", "upload not done, process exiting"];
        assert_logged(&finished.stderr, &lines);
        assert!(!finished.stderr.contains("waiting for upload to finish"), "{}", finished.stderr);
    }
}

#[test]
fn malformed_variables_are_fatal_and_all_are_named() {
    let both = [("UPLOAD_IMAGE_SIZE", "large"), ("CDI_UPLOAD_STALL_SECONDS", "0")];
    let both_named = ["UPLOAD_IMAGE_SIZE", "CDI_UPLOAD_STALL_SECONDS"];
    for (env, code, named) in [
        (&[("DEADLINE", "tomorrow")][..], 255, &["tomorrow"][..]),
        (&[("DEADLINE", "2026-13-01T00:00:00Z")], 255, &["2026-13-01T00:00:00Z"]),
        (&[("DEADLINE", "1700000000")], 255, &["1700000000"]),
        (&both, 1, &both_named),
    ] {
        let pod = pod(env);
        let finished = pod.program().start().wait();
        assert_ended(&finished, &pod, code, None);
        assert_logged(&finished.stderr, named);
    }
}

#[test]
fn a_running_upload_is_waited_for_after_the_deadline() {
    let content = disk::content(1, MIB);
    for is_completed in [true, false] {
        let pod = pod(&[("DEADLINE", &in_seconds(2))]);
        let server = pod.start();
        let mut upload = server.begin_upload("/v1beta1/upload", content.len(), &content[..5000]);
        server.wait_for_line("waiting for upload to finish");
        if is_completed {
            upload.send(&content[5000..]).unwrap();
            upload
                .response()
                .unwrap_or_else(|error| panic!("{error}: {}", server.log()))
                .assert_uploaded();
        }
        drop(upload);
        let finished = server.wait();
        let message = if is_completed { UPLOADED } else { DEADLINE_PASSED };
        assert_ended(&finished, &pod, 0, Some(message));
        assert_logged(&finished.stderr, &["deadline exceeded, shutting down"]);
        if is_completed {
            assert!(std::fs::read(pod.disk()).unwrap() == content);
        } else {
            assert_logged(&finished.stderr, &["upload not done, process exiting"]);
            assert_eq!(pod.data_names(), [""; 0]);
        }
    }
}

/// The server grants ten seconds to running requests, for which it must not wait here.
#[test]
#[ignore = "alone: measures how long the server takes to end"]
fn sigterm_ends_an_idle_server_at_once() {
    let pod = pod(&[]);
    let server = pod.start();
    let mut idle = server.connect();
    idle.exchange(&Request::new("GET", "/healthz"), &[]).unwrap().assert(200, "OK");
    let sent = Instant::now();
    server.signal(Signal::TERM);
    let finished = server.wait();
    assert_eq!(finished.code(), TERMINATED, "{}", finished.stderr);
    assert!(sent.elapsed() < Duration::from_secs(8), "{:?}", sent.elapsed());
}

/// The client stalls. The signal must end the server, not its stall timeout of minutes.
#[test]
#[ignore = "slow: waits 10 s"]
fn sigterm_in_the_middle_of_an_upload_leaves_no_disk() {
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(folder.path(), 8 * MIB, 512);
    std::thread::scope(|scope| {
        for pod in [pod(&[]), pod(&[]).block(device.path())] {
            scope.spawn(move || {
                let server = pod.start();
                let content = disk::content(1, 8 * MIB);
                let part = &content[..5 << 20];
                let _upload = server.begin_upload("/v1beta1/upload", content.len(), part);
                server.signal(Signal::TERM);
                let finished = server.wait();
                assert_eq!(finished.code(), TERMINATED, "{}", finished.stderr);
                assert!(!finished.crashed(), "{}", finished.stderr);
                assert_eq!(pod.data_names(), [""; 0]);
                let message = pod.message().unwrap_or_default();
                assert!(!message.contains("Complete"), "{message}");
            });
        }
    });
    assert!(disk::begins_with_only(&[0, DIRT], device.path(), MIB));
}
