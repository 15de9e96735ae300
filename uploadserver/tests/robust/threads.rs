//! A system without free threads: every upload must get an answer, and the next one must be
//! accepted when there are threads again.

use std::time::Duration;

use testkit::cgroup::PidsCgroup;
use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::Request;
use testkit::upload_pod::{Server, UploadPod};

use crate::BINARY;

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// More threads than an upload needs beyond those of an idle server.
const MOST: u64 = 20;

/// Sends `request` to a server that may have 0, 1, 2… more threads than when idle, until it
/// answers `success`. Every attempt before that must be refused with a message, and leave the
/// server free and the volume empty.
#[track_caller]
fn few_threads(request: &Request, body: &[u8], success: u16) -> (UploadPod, PidsCgroup, Server) {
    let pod = UploadPod::new(BINARY);
    let group = PidsCgroup::new();
    let server = pod.serve(group.wrap(pod.program()));
    let rest = group.threads();
    let is_refused = |more: &u64| {
        let mut connection = server.connect();
        connection.set_patience(PATIENCE).or_fail("a limit of time");
        group.limit(rest + more);
        let answer = connection.exchange(request, body);
        group.lift();
        let answer =
            answer.unwrap_or_else(|error| panic!("no answer with {more} more threads: {error}"));
        if answer.status == success {
            return false;
        }
        let text = answer.text();
        // 410 means that the resumable upload has ended.
        assert!(
            [410, 503].contains(&answer.status) && text.contains("cannot start a thread"),
            "{more}: {answer:?}"
        );
        server.wait_for_line("cannot start a thread");
        server.wait_until_idle();
        assert_eq!(pod.data_names(), [""; 0], "{more} more");
        true
    };
    let refused = (0..MOST).take_while(is_refused).count();
    assert!(refused > 0 && refused < 20, "{refused} were refused");
    (pod, group, server)
}

#[test]
#[ignore = "root: rights of root"]
fn an_upload_without_a_thread_is_refused_and_the_next_one_accepted() {
    let content = disk::content(1, 1 << 20);
    for path in ["/v1beta1/upload", "/v1beta1/upload-async"] {
        let (pod, _group, server) = few_threads(&Request::post(path), &content, 200);
        server.wait().assert_success(path);
        assert!(std::fs::read(pod.disk()).unwrap() == content, "{path}");
    }
    let request = Request::post("/v1beta1/upload-resumable")
        .header("Tus-Resumable", "1.0.0")
        .header("Upload-Length", &content.len().to_string());
    let (_pod, _group, _server) = few_threads(&request, &content, 201);
}
