//! Bodies that are cut at any point.

use std::path::Path;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::framing::{Part, chunked, form, form_content_type};
use testkit::https::Request;
use testkit::images::{Compression, Content, Image, Spec};
use testkit::loopdev::{DIRT, LoopDevice};
use testkit::random::Random;
use testkit::tools;
use testkit::upload_pod::{Server, UploadPod};

use crate::BINARY;
use crate::http2::Http2;

const CUTS: usize = 100;

/// The part of a device in which a broken attempt may leave nothing.
const FIRST_BYTES: u64 = 1 << 20;

/// A request that is cut off.
struct Attempt {
    name: String,
    request: Request,
    body: Vec<u8>,
}

impl Attempt {
    /// Sends the first `bytes` of the body after the server has accepted the request, and
    /// disconnects.
    fn cut_after(&self, server: &Server, bytes: usize) {
        let mut connection = server.connect();
        let request = self.request.clone().header("Expect", "100-continue");
        connection.begin(&request).or_fail(&self.name);
        let interim = connection.response().or_fail(&self.name);
        assert_eq!(interim.status, 100, "{}: {interim:?}", self.name);
        connection.send_until_answered(&self.body[..bytes]).or_fail(&self.name);
    }
}

/// Returns every image in every framing, synchronous and asynchronous.
fn attempts(image: &Image) -> Vec<Attempt> {
    let read = |path: &Path| std::fs::read(path).or_fail(path.display());
    let (raw, qcow2) = (read(&image.raw), read(&image.qcow2));
    let gzip = tools::filter("gzip", ["-c"], &raw);
    let mut attempts = Vec::new();
    for (name, bytes) in [("raw", raw), ("qcow2", qcow2), ("raw.gz", gzip)] {
        for suffix in ["", "-async"] {
            let plain = Request::post(&format!("/v1beta1/upload{suffix}"));
            let as_form = Request::post(&format!("/v1beta1/upload-form{suffix}"))
                .header("Content-Type", &form_content_type());
            let form = form(&[Part::field("comment", "x"), Part::file(&bytes)]);
            for (framing, request, body) in [
                ("plain", plain.clone().length(bytes.len()), bytes.clone()),
                ("chunked", plain.chunked(), chunked(&bytes, 20_000, &[])),
                ("form", as_form.clone().length(form.len()), form.clone()),
                ("chunked form", as_form.chunked(), chunked(&form, 20_000, &[])),
            ] {
                attempts.push(Attempt {
                    name: format!("{name} {framing} {suffix}"),
                    request,
                    body,
                });
            }
        }
    }
    attempts
}

fn image(folder: &Path) -> Image {
    let spec =
        Spec { compression: Compression::Zlib, virtual_size: 4 << 20, ..Spec::new(Content::Dense) };
    spec.build(folder, "image")
}

/// Uploads the whole image.
fn finish(server: Server, image: &Image, target: &Path) {
    let qcow2 = std::fs::read(&image.qcow2).or_fail("the image");
    server.post_last("/v1beta1/upload", &qcow2);
    disk::assert_same(target, &image.raw, image.virtual_size, "after many cuts");
}

#[test]
#[ignore = "tools: qemu-img"]
fn a_hundred_broken_bodies_leave_a_working_server() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let attempts = attempts(&image);
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let mut random = Random::new(1);
    for round in 0..CUTS {
        let attempt = &attempts[round % attempts.len()];
        // At most all bytes but one.
        let at = usize::try_from(random.below(attempt.body.len() as u64)).unwrap();
        attempt.cut_after(&server, at);
        server.wait_until_idle();
        let names = pod.data_names();
        assert!(names.is_empty(), "{} cut at {at}: {names:?}", attempt.name);
    }
    finish(server, &image, &pod.disk());
}

#[test]
#[ignore = "root: loop devices"]
fn broken_bodies_leave_a_device_without_the_beginning_of_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let attempts = attempts(&image);
    let device = LoopDevice::new(folder.path(), image.virtual_size, 512);
    let pod = UploadPod::new(BINARY).block(device.path());
    let server = pod.start();
    let mut random = Random::new(2);
    for attempt in &attempts {
        let at = usize::try_from(random.below(attempt.body.len() as u64)).unwrap();
        attempt.cut_after(&server, at);
        server.wait_until_idle();
        assert!(
            disk::begins_with_only(&[0, DIRT], device.path(), FIRST_BYTES),
            "{} cut at {at}",
            attempt.name
        );
    }
    finish(server, &image, device.path());
}

#[test]
#[ignore = "tools: qemu-img"]
fn reset_http_2_streams_leave_a_working_server() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(folder.path());
    let qcow2 = std::fs::read(&image.qcow2).unwrap();
    let pod = UploadPod::new(BINARY);
    let server = pod.start();
    let mut random = Random::new(3);
    // All streams of a connection together may send 65 535 bytes without permission (RFC 9113
    // §6.9.2).
    for (keep_connection, limit) in [(true, 2_500), (false, 60_000)] {
        let mut connection = Http2::open(&pod, &server);
        for round in 0..25 {
            let path = if round % 2 == 0 { "/v1beta1/upload" } else { "/v1beta1/upload-async" };
            let at = usize::try_from(random.below(limit)).unwrap();
            let stream = connection.begin(path, qcow2.len());
            connection.send(stream, &qcow2[..at]);
            server.wait_for_state("uploading");
            if keep_connection {
                connection.reset(stream);
            } else {
                // The old connection is closed without a message.
                connection = Http2::open(&pod, &server);
            }
            server.wait_until_idle();
            assert_eq!(pod.data_names(), [""; 0], "cut at {at}");
        }
    }
    finish(server, &image, &pod.disk());
}
