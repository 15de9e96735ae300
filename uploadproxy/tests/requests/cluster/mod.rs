//! The proxy in a cluster: against a real API server, with the rights that CDI's operator gives it and no others.

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

/// Within this time, what is changed in the cluster must have its effect in the proxy (CDI's functional test 9063).
const PROMPT: Duration = Duration::from_secs(10);

/// The cluster of all tests but those that stop its API server. Each test has claims and a ConfigMap of its own.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| {
        let cluster = Cluster::start();
        cluster.install_cdi();
        cluster
    })
}

/// Tries until there is a value, for at most `patience`; returns it and how long that took.
#[track_caller]
fn eventually<T>(what: &str, patience: Duration, attempt: impl Fn() -> Result<T, String>) -> (T, Duration) {
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
