//! Node pulls: the disk comes from another container of the same pod.

use std::time::Duration;

use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::origin::{Origin, Script};
use testkit::{disk, tools};

use super::pod::{MIB, Pod, SUCCESS, serve};

/// A server of `content`, a server of the document `info` to which it redirects `/info`, and a pod
/// that pulls from it.
fn pull(content: Vec<u8>, info: &'static str) -> (Origin, Origin, Pod) {
    let info = serve(Script::new(info));
    let redirects = [("/info".to_owned(), vec![info.url("/info")])].into();
    let origin = serve(Script { redirects, ..Script::new(content) });
    let mut pod = Pod::http(&origin.url("/disk.img"), &[("IMPORTER_PULL_METHOD", "node")]);
    pod.set("IMPORTER_READY_FILE", pod.path("ready").display());
    pod.set("IMPORTER_DONE_FILE", pod.path("done").display());
    // Ignored: the server is a container of the same pod.
    pod.set("IMPORTER_CHECKSUM", "md5:00000000000000000000000000000000");
    (info, origin, pod)
}

#[test]
#[ignore = "tools: qemu-img, xz, zstd"]
fn compressed_disks_of_a_container_are_unpacked_in_one_pass() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) };
    let image = spec.build(folder.path(), "image");
    for (program, suffix) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")] {
        for (source, format) in [(&image.raw, "img"), (&image.qcow2, "qcow2")] {
            let name = format!("disk.{format}.{suffix}");
            let content = std::fs::read(source).or_fail(&name);
            let (_info, origin, pod) = pull(tools::filter(program, ["-c", "-1"], &content), "{}");
            std::fs::write(pod.path("ready"), &name).or_fail("write the ready file");
            pod.assert_succeeds_with(SUCCESS);
            disk::assert_same(&pod.disk(), &image.raw, image.virtual_size, &name);
            let paths: Vec<_> =
                origin.requests().iter().map(|seen| seen.request.path().to_owned()).collect();
            assert_eq!(paths, [format!("/{name}"), "/info".to_owned()], "one pass");
        }
    }
}

#[test]
fn a_node_pull_waits_for_the_ready_file_and_collects_the_labels() {
    let info = r#"{"env":["PATH=/bin","INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small"]}"#;
    let (_info, origin, pod) = pull(disk::content(5, MIB), info);
    let running = pod.program().start();
    running.wait_for_line("Starting importer");
    // There is no event to wait for: nothing may be requested during this time.
    std::thread::sleep(Duration::from_millis(200));
    assert!(origin.requests().is_empty(), "a request came before the server was ready");
    std::fs::write(pod.path("ready"), "fedora 40.img").or_fail("write the ready file");
    running.wait().assert_success("node pull");
    assert_eq!(
        pod.message().as_deref(),
        Some(
            r#"{"scratchSpaceRequired":false,"preallocationApplied":false,"labels":{"instancetype.kubevirt.io/default-instancetype":"u1.small"},"message":"Import Complete"}"#
        )
    );
    assert!(pod.path("done").exists());
    let first = origin.requests().into_iter().next().or_fail("a request");
    assert_eq!(first.request.path(), "/fedora%2040.img");
}
