//! The client: requests to a real cluster, whole uploads, and hostile clusters.

mod cluster;
mod download;
mod hostile;
mod images;
mod mistakes;
mod trial;
mod upload;

use std::path::Path;

use testkit::fail::OrFail;

const BINARY: &str = env!("CARGO_BIN_EXE_kubectl-cdi");

/// Writes a kubeconfig that names `server`.
fn write_kubeconfig(file: &Path, server: &str) {
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": "test", "user": {"token": "hunter2"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    });
    std::fs::write(file, config.to_string()).or_fail("a kubeconfig");
}
