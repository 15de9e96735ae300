//! Clients and upload servers that misbehave. They must not get anything past the proxy, nor harm
//! others.

mod backpressure;
mod client;
mod crowd;
mod drain;
mod hostile;
mod isolation;
mod limits;
mod log;
mod slow;
mod smuggling;
mod stalled;
mod uploads;

use std::time::{Duration, Instant};

use testkit::process::memory;
use testkit::upload_proxy::Scripted;

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-uploadproxy");

const PATH: &str = "/v1beta1/upload";

/// Uploads to an upload server that answers 200, and returns how long that took.
#[track_caller]
fn time_upload(front: &Scripted) -> Duration {
    let started = Instant::now();
    let response = front.server.exchange(&front.request("POST", PATH), b"a small image");
    assert_eq!(response.status, 200, "{response:?}");
    started.elapsed()
}
