//! Node pulls: the disk comes from another container of the same pod.

use std::path::Path;
use std::time::Duration;

use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::origin::{Origin, Script};
use testkit::{disk, tools};

use super::pod::{MIB, Pod, SUCCESS, serve};

#[test]
#[ignore = "tools: qemu-img, xz, zstd"]
fn compressed_disks_of_a_container_are_unpacked_in_one_pass() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let spec = Spec { compression: Compression::Zlib, ..Spec::new(Content::Sparse) };
    let image = spec.build(folder.path(), "image");
    let info = serve(Script::new("{}"));
    for (program, suffix) in [("gzip", "gz"), ("xz", "xz"), ("zstd", "zst")] {
        for (source, format) in [(&image.raw, "img"), (&image.qcow2, "qcow2")] {
            let name = format!("disk.{format}.{suffix}");
            let content = std::fs::read(source).or_fail(&name);
            let origin = side_server(&info, tools::filter(program, ["-c", "-1"], &content));
            let ready = folder.path().join("ready");
            std::fs::write(&ready, &name).or_fail("write the ready file");
            let env = [
                ("IMPORTER_PULL_METHOD", "node"),
                ("IMPORTER_READY_FILE", ready.to_str().or_fail("a path of ASCII")),
            ];
            let pod = Pod::http(&origin.url("/disk.img"), &env);
            pod.assert_succeeds_with(SUCCESS);
            disk::assert_same(&pod.disk(), &image.raw, image.virtual_size, &name);
            let paths: Vec<_> =
                origin.requests().iter().map(|seen| seen.request.path().to_owned()).collect();
            assert_eq!(paths, [format!("/{name}"), "/info".to_owned()], "one pass");
        }
    }
}

/// Serves `content`, and redirects `/info` to the one of `info`.
fn side_server(info: &Origin, content: Vec<u8>) -> Origin {
    serve(Script {
        redirects: [("/info".to_owned(), vec![info.url("/info")])].into(),
        ..Script::new(content)
    })
}

#[test]
fn a_node_pull_waits_for_the_ready_file_and_collects_the_labels() {
    let info = serve(Script::new(
        r#"{"env":["PATH=/bin","INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small"]}"#,
    ));
    let origin = side_server(&info, disk::content(5, MIB));
    let folder = tempfile::tempdir().or_fail("a folder");
    let path = |name: &str| folder.path().join(name).to_str().or_fail("a path of ASCII").to_owned();
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
    // There is no event to wait for: nothing may be requested during this time.
    std::thread::sleep(Duration::from_millis(500));
    assert!(origin.requests().is_empty(), "a request came before the server was ready");
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
