//! The disk of a container in the same pod.

use std::path::Path;
use std::time::Duration;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::origin::Script;

use super::pod::{MIB, Pod, serve};

#[test]
fn a_node_pull_follows_the_files_and_collects_the_labels() {
    let info = serve(Script::new(
        r#"{"env":["PATH=/bin","INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small"]}"#,
    ));
    let redirects = [("/info".to_owned(), vec![info.url("/info")])].into();
    let origin = serve(Script {
        redirects,
        ..Script::new(disk::content(5, MIB))
    });
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| {
        folder
            .path()
            .join(name)
            .to_str()
            .or_fail("a path of ASCII")
            .to_owned()
    };
    let (ready, done) = (path("ready"), path("done"));
    let pod = Pod::http(
        &origin.url("/disk.img"),
        &[
            ("IMPORTER_PULL_METHOD", "node"),
            ("IMPORTER_READY_FILE", &ready),
            ("IMPORTER_DONE_FILE", &done),
            // Ignored: the server is a container of the same pod.
            ("IMPORTER_CHECKSUM", "md5:00000000000000000000000000000000"),
        ],
    );
    let running = pod.program().start();
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        origin.requests().is_empty(),
        "nothing is asked before the server is ready"
    );
    std::fs::write(&ready, "fedora 40.img").or_fail("write the ready file");
    running.wait().assert_success("node pull");
    assert_eq!(
        pod.message().as_deref(),
        Some(
            r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"labels":{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"message":"Import Complete"}"#
        )
    );
    assert!(Path::new(&done).exists());
    let first = origin.requests().into_iter().next().or_fail("a request");
    assert_eq!(first.request.path(), "/fedora%2040.img");
}
