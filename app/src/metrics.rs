//! The metrics of a pod, where CDI's controllers look for them.

use std::net::SocketAddr;

use daemon::env::Strings;
use daemon::metrics::{Registry, server};
use tokio_util::sync::CancellationToken;

/// Another address, so that tests can run side by side. Not documented for users.
const ADDRESS_VARIABLE: &str = "CDI_WORKERS_TEST_METRICS_ADDR";

/// Serves `registry` until `stop`.
pub async fn serve(env: &dyn Strings, registry: Registry, stop: &CancellationToken) {
    let other: Option<SocketAddr> = env.get(ADDRESS_VARIABLE).and_then(|text| text.parse().ok());
    let addresses = other.map_or_else(|| server::addresses().to_vec(), |address| vec![address]);
    server::start(&addresses, registry, stop.clone()).await;
}
