//! Checks that the server answers while it decodes. This file has a single test, so that no other
//! one runs meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::https::Request;
use testkit::upload_pod::UploadPod;
use testkit::{disk, tools};

/// Time limit of a probe while two cores decode.
const LIMIT: Duration = Duration::from_millis(100);

/// Length of the content, and how many times it is repeated on the disk.
const PERIOD_BYTES: u64 = 32 << 20;
const PERIODS: usize = 16;

#[test]
#[ignore = "alone: measures response times"]
fn health_is_answered_while_xz_is_decoded() {
    let content = disk::content(1, PERIOD_BYTES);
    let stream = tools::filter("xz", ["-c", "-T2", "-1", "--block-size=8MiB"], &content);
    let body = stream.repeat(PERIODS);
    let pod = UploadPod::new(env!("CARGO_BIN_EXE_cdi-uploadserver"));
    let server = pod.start();
    let done = AtomicBool::new(false);
    let mut waits = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.post("/v1beta1/upload", &body).assert_uploaded();
            done.store(true, Ordering::Relaxed);
        });
        server.wait_for_line("Content type header is");
        let mut probe = server.connect();
        while !done.load(Ordering::Relaxed) {
            let started = Instant::now();
            let health = probe.exchange(&Request::new("GET", "/healthz"), &[]);
            // The server closes its connections once the upload is done.
            match health {
                Ok(health) => health.assert(200, "OK"),
                Err(error) => {
                    let ended = Instant::now();
                    while !done.load(Ordering::Relaxed) {
                        assert!(ended.elapsed() < Duration::from_secs(2), "{error}");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    break;
                }
            }
            waits.push(started.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    server.wait().assert_success("upload");
    waits.sort();
    assert!(waits.len() > 100, "the upload took only {} probes", waits.len());
    let longest = waits[waits.len() - 1];
    let median = waits[waits.len() / 2];
    println!("{} probes, median {median:?}, longest {longest:?}", waits.len());
    assert!(longest < LIMIT, "a probe took {longest:?}, the median is {median:?}");
}
