//! The contract with CDI: the answers to all requests, the texts of failures, the end of the
//! process, and TLS.

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

/// Returns a pod in filesystem mode with these variables in its environment.
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
