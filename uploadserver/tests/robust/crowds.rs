//! Crowds of connections: a known client must get its answer, and the others may hold little
//! memory.

use std::net::Ipv4Addr;
use std::time::Duration;

use testkit::disk;
use testkit::fail::OrFail;
use testkit::images::{Compression, Content, Spec};
use testkit::oci::tar;
use testkit::storm::{Crowd, Storm, allow_files, source};
use testkit::upload_pod::{Server, UploadPod, begin_upload_over};
use testkit::wait;

use crate::BINARY;

/// Limit on the connections of a server.
const CONNECTIONS: usize = 256;

/// Files that a test opens for its crowd.
const FILES: u64 = 8192;

/// New connections per second, as observed from a single address.
const PER_SECOND: u32 = 6000;

/// Attempts of a client to connect in a storm, after the first of each of ten uploads. Two quiet
/// processors seldom need one; beside compilers that used both, three in a row failed.
const RETRIES: u32 = 20;

/// The time that a client waits before it tries again.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Starts a server whose disk takes this many seconds to sync.
fn slow_to_sync(pod: &UploadPod, seconds: u64) -> Server {
    let inject = format!("inject=fsync,fdatasync,syncfs:delay_enter={}", seconds * 1_000_000);
    let quiet = ["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null"];
    let options = quiet.into_iter().chain(["-e", "trace=fsync,fdatasync,syncfs", "-e", &*inject]);
    pod.serve(pod.program().under("strace", options))
}

#[test]
#[ignore = "slow: waits 8 s"]
fn a_client_that_waits_for_its_answer_is_not_closed_in_favour_of_others() {
    allow_files(FILES);
    let content = disk::content(1, 4 << 20);
    for path in ["/v1beta1/upload", "/v1beta1/upload-archive"] {
        let is_archive = path.ends_with("archive");
        let body = if is_archive { tar(&[("disk.img", &content)]) } else { content.clone() };
        let pod = UploadPod::new(BINARY);
        let server = slow_to_sync(&pod, 2);
        let mut upload = server.begin_upload(path, body.len(), &body);
        // Everything is received, and is being written to the disk.
        server.wait_for_line(if is_archive {
            "New phase: TransferDataDir"
        } else {
            "New phase: Resize"
        });
        server.wait_for_status(&[&format!("\"received_bytes\":{},", body.len())]);
        let mut crowd = Crowd::new();
        crowd.join(source, server.address(), 2 * CONNECTIONS, b"");
        upload.response().or_fail("an answer").assert_uploaded();
        server.wait().assert_success("an upload beside a crowd");
        let written = if is_archive { pod.path("data/disk.img") } else { pod.disk() };
        assert!(std::fs::read(written).unwrap() == content, "{path}");
    }
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn uploads_succeed_in_a_storm_of_connections() {
    allow_files(FILES);
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec {
        compression: Compression::Zlib,
        virtual_size: 16 << 20,
        ..Spec::new(Content::Dense)
    };
    let image = spec.build(folder.path(), "image");
    let qcow2 = std::fs::read(&image.qcow2).unwrap();
    // From another address, from the client's own address, and from many.
    let sources = [vec![source(0)], vec![Ipv4Addr::LOCALHOST], (0..250).map(source).collect()];
    // If the machine halts the client for some milliseconds, the storm replaces its handshake.
    let mut retries = RETRIES;
    for (round, sources) in sources.into_iter().cycle().take(10).enumerate() {
        let pod = UploadPod::new(BINARY);
        let server = pod.start();
        let storm = Storm::start(server.address(), sources, PER_SECOND);
        wait::until(|| "no storm", || storm.connections() >= u64::from(PER_SECOND) / 10);
        let connection = loop {
            match server.try_connect() {
                Ok(connection) => break connection,
                Err(error) => retries = retries.checked_sub(1).or_fail(format!("{round}: {error}")),
            }
            std::thread::sleep(RETRY_DELAY);
        };
        let mut upload = begin_upload_over(connection, "/v1beta1/upload", qcow2.len(), &[]);
        upload.send_until_answered(&qcow2).or_fail("send");
        upload.response().or_fail(format!("answer {round}")).assert_uploaded();
        drop(storm);
        server.wait().assert_success("an upload in a storm");
        disk::assert_same(&pod.disk(), &image.raw, image.virtual_size, "an upload in a storm");
    }
}
