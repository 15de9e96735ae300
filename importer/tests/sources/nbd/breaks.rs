//! Connections and disks that break.

use std::time::Instant;

use stream::error::SourceErrorKind;
use testkit::nbd::NbdServer;
use testkit::nbd_proxy::NbdProxy;

use super::*;

/// `qemu-nbd` with a disk of `length` bytes, in which each word is its own offset. nbdkit 1.32
/// cannot be used, because it fails an assertion when a client disconnects during parallel reads.
fn pattern_of_qemu(folder: &Path, length: u64) -> NbdServer {
    let path = folder.join("pattern");
    let bytes: Vec<u8> = (0..length).step_by(8).flat_map(u64::to_be_bytes).collect();
    std::fs::write(&path, bytes).unwrap();
    NbdServer::qemu(["--format=raw".to_owned(), text(&path)])
}

fn is_pattern(bytes: &[u8]) -> bool {
    let mut words = bytes.chunks(8).enumerate();
    words.all(|(index, word)| word == (index as u64 * 8).to_be_bytes())
}

#[test]
#[ignore = "slow: waits 16 s"]
fn a_disk_arrives_even_if_every_connection_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let server = pattern_of_qemu(folder.path(), 4 << 20);
    let proxy = NbdProxy::start(&server.socket(), vec![400_000; 100]).unwrap();
    // Data that arrives before a cut is lost if it is not read in time, so that whole connections
    // may deliver nothing on a busy machine.
    let patient = Network {
        retry_policy: RetryPolicy {
            no_progress_limit: Duration::from_secs(120),
            ..access().retry_policy
        },
        ..access()
    };
    let received = fetch_with(&proxy.uri(""), &patient).unwrap();
    assert!(received.bytes.len() == 4 << 20 && is_pattern(&received.bytes));
}

#[test]
#[ignore = "server: nbdkit"]
fn an_export_whose_size_has_changed_is_refused() {
    let before = NbdServer::nbdkit(["pattern", "64M"]);
    let after = NbdServer::nbdkit(["pattern", "65M"]);
    let proxy = NbdProxy::start(&before.socket(), vec![10 << 20]).unwrap();
    let source = open(&proxy.uri("")).unwrap();
    proxy.redirect(&after.socket());
    let error = receive(&mut *source.open_body().unwrap()).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Changed);
    assert_eq!(
        error.to_string(),
        "the NBD export had 67108864 bytes when it was opened and has 68157440 now: it changed while it was read"
    );
}

#[test]
#[ignore = "server: nbdkit"]
fn a_server_that_stays_away_ends_the_import() {
    let server = NbdServer::nbdkit(["pattern", "64M"]);
    let proxy = NbdProxy::start(&server.socket(), vec![10 << 20]).unwrap();
    let access = Network {
        retry_policy: RetryPolicy { retries: Some(2), ..access().retry_policy },
        ..access()
    };
    let source = open_with(&proxy.uri(""), &access).unwrap();
    server.stop();
    let error = receive(&mut *source.open_body().unwrap()).err().unwrap().to_string();
    assert!(error.starts_with("giving up at byte "), "{error}");
    assert!(error.contains("after 3 failures in a row"), "{error}");
}

#[test]
#[ignore = "server: nbdkit"]
fn read_errors_are_retried_and_then_reported() {
    let folder = tempfile::tempdir().unwrap();
    let trigger = folder.path().join("broken");
    std::fs::write(&trigger, "").unwrap();
    let file = format!("error-pread-file={}", text(&trigger));
    let args = ["--filter=error", "pattern", "8M", "error-pread-rate=100%", &file];
    let server = NbdServer::nbdkit(args);
    let source = open(&server.uri("")).unwrap();
    let error = receive(&mut *source.open_body().unwrap()).err().unwrap().to_string();
    let ending = "bytes at offset 0 with EIO (5), 5 times in a row";
    assert!(error.starts_with("the NBD server answers the read of "), "{error}");
    assert!(error.ends_with(ending), "{error}");

    let mut body = source.open_body().unwrap();
    let healing = std::thread::spawn(move || {
        // By then some reads have failed, and attempts are left. nbdkit shows neither.
        std::thread::sleep(Duration::from_millis(300));
        std::fs::remove_file(trigger).unwrap();
    });
    assert!(is_pattern(&receive(&mut *body).unwrap().bytes));
    healing.join().unwrap();
}

#[test]
#[ignore = "server: nbdkit"]
fn failing_block_status_does_not_fail_the_import() {
    let args = ["--filter=error", "pattern", "8M", "error-extents=EIO", "error-extents-rate=100%"];
    let server = NbdServer::nbdkit(args);
    assert!(is_pattern(&fetch(&server.uri("")).unwrap().bytes));
}

#[test]
#[ignore = "server: nbdkit"]
fn a_stop_ends_the_wait_for_a_server() {
    let server = NbdServer::nbdkit(["--filter=delay", "pattern", "8M", "rdelay=60"]);
    let stop = CancellationToken::new();
    let source = open_with(&server.uri(""), &Network { stop: stop.clone(), ..access() }).unwrap();
    let stopping = std::thread::spawn(move || {
        // By then a read waits at nbdkit, which does not show it.
        std::thread::sleep(Duration::from_millis(200));
        stop.cancel();
    });
    let start = Instant::now();
    let error = receive(&mut *source.open_body().unwrap()).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Stopped);
    // nbdkit delays the read for a minute.
    assert!(start.elapsed() < Duration::from_secs(5));
    stopping.join().unwrap();
}

#[test]
#[ignore = "server: nbdkit"]
fn a_silent_server_is_given_up() {
    // One thread: nbdkit dies if a client goes away during parallel reads (`pattern_of_qemu`).
    let server = NbdServer::nbdkit(["--threads=1", "--filter=delay", "pattern", "8M", "rdelay=60"]);
    let access = Network {
        retry_policy: RetryPolicy {
            no_progress_limit: Duration::from_secs(3),
            ..access().retry_policy
        },
        ..access()
    };
    let error = fetch_with(&server.uri(""), &access).err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Stalled);
    assert_eq!(
        error.to_string(),
        "no new byte for 3 s at byte 0, giving up: the server sent nothing for 1.0 s"
    );
}
