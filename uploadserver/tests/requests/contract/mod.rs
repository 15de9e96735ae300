//! The contract with CDI: what every request gets, how failures read, how the process ends, what TLS it speaks.

mod checksums;
mod ending;
mod failures;
mod ownership;
mod representation;
mod routes;
mod tls;

use crate::BINARY;
use testkit::upload_pod::UploadPod;

const MIB: u64 = 1 << 20;

/// A pod in filesystem mode with this environment on top.
fn pod(env: &[(&str, &str)]) -> UploadPod {
    env.iter().fold(UploadPod::new(BINARY), |pod, (name, value)| pod.env(name, value))
}

/// Fails the test unless the log has all these lines, in any order.
#[track_caller]
fn assert_logged(log: &str, lines: &[&str]) {
    for line in lines {
        assert!(log.contains(line), "{line:?} is missing in\n{log}");
    }
}
