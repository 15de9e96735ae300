//! Clients and upload servers that misbehave: none of them gets anything through, and none of them harms the others.

mod backpressure;
mod client;
mod crowd;
mod drain;
mod isolation;
mod limits;
mod log;
mod slow;
mod smuggling;
mod uploads;

use std::time::{Duration, Instant};

use testkit::fail::OrFail;
use testkit::upload_proxy::Scripted;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-uploadproxy");

const PATH: &str = "/v1beta1/upload";

/// Uploads to an upload server that answers 200, and says how long that took.
#[track_caller]
fn time_upload(front: &Scripted) -> Duration {
    let started = Instant::now();
    let response = front
        .server
        .exchange(&front.request("POST", PATH), b"a small image");
    assert_eq!(response.status, 200, "{response:?}");
    started.elapsed()
}

/// A number of /proc/PID/status, in bytes.
fn memory(process: u32, field: &str) -> u64 {
    let file = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&file).or_fail(&file);
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.or_fail(field);
    let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kib.parse::<u64>().or_fail(field) * 1024
}
