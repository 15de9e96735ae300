//! The proxy in a cluster: with a real API server, and only the rights that CDI's operator grants.

mod claims;
mod deployed;
mod outage;
mod rights;
mod rotation;
mod tls;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::BINARY;
use testkit::cluster::Cluster;

/// The namespace of the claims.
const NAMESPACE: &str = "default";

/// The proxy must follow changes in the cluster within this time (CDI's functional test 9063).
const PROMPT: Duration = Duration::from_secs(10);

/// Returns the cluster of all tests except those that stop its API server. Each test has claims
/// and a ConfigMap of its own.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::start();
        cluster.install_cdi();
        cluster
    })
}

/// Calls `attempt` until it returns a value, for at most `patience`. Returns the value and how
/// long that took.
#[track_caller]
fn eventually<T>(
    what: &str,
    patience: Duration,
    attempt: impl Fn() -> Result<T, String>,
) -> (T, Duration) {
    let started = Instant::now();
    loop {
        let failure = match attempt() {
            Ok(value) => return (value, started.elapsed()),
            Err(failure) => failure,
        };
        assert!(started.elapsed() < patience, "{what}: not within {patience:?}: {failure}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
