//! Checks that no file is created or written besides the target and the termination log.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::framing::{Part, form, form_content_type};
use testkit::https::Request;
use testkit::images::{Compression, Content, Spec};
use testkit::syscalls;
use testkit::tools;
use testkit::upload_pod::UploadPod;

/// Uploads `body`, and fails the test if anything but the disk and the termination log was created
/// or opened for writing.
fn check(name: &str, request: &Request, body: &[u8], raw: &Path, length: u64) {
    let pod = UploadPod::new(crate::BINARY);
    // A scratch volume exists, but is not needed.
    std::fs::create_dir(pod.path("scratch")).or_fail(name);
    let log = pod.path("strace.log");
    let server = pod.serve(syscalls::watched(pod.program(), &log));
    server.exchange(request, body).assert_uploaded();
    server.wait().assert_success(name);
    let allowed = [pod.disk(), pod.path("dev/termination-log")];
    let calls = syscalls::created(&log);
    let (expected, elsewhere): (Vec<_>, Vec<_>) =
        calls.iter().partition(|call| allowed.iter().any(|path| syscalls::is_about(call, path)));
    assert!(expected.len() >= 2, "{name}: the target must be among the files: {calls:#?}");
    assert!(elsewhere.is_empty(), "{name}: other files were written: {elsewhere:#?}");
    disk::assert_same(&pod.disk(), raw, length, name);
}

#[test]
#[ignore = "tools: qemu-img, qemu-io, strace, xz"]
fn nothing_is_written_besides_the_target() {
    let folder = tempfile::tempdir().unwrap();
    for content in [Content::Sparse, Content::Snapshots, Content::RandomOrder] {
        let spec = Spec {
            compression: Compression::Zlib,
            resized_to: Some(600 << 20),
            ..Spec::new(content)
        };
        let image = spec.build(folder.path(), "image");
        let qcow2 = std::fs::read(&image.qcow2).unwrap();
        let (raw, length) = (image.raw.as_path(), image.virtual_size);
        let as_form =
            Request::post("/v1beta1/upload-form").header("Content-Type", &form_content_type());
        check("an image", &Request::post("/v1beta1/upload"), &qcow2, raw, length);
        check("an image, async", &Request::post("/v1beta1/upload-async"), &qcow2, raw, length);
        check("a form", &as_form, &form(&[Part::file(&qcow2)]), raw, length);
        let xz = tools::filter("xz", ["-c", "-1"], &qcow2);
        check("a compressed image", &Request::post("/v1beta1/upload"), &xz, raw, length);
    }
}
