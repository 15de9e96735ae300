//! The HTTPS endpoint that CDI's controllers and Prometheus scrape.
//!
//! Every path and method returns the text of the registry. If the endpoint fails, the error is
//! logged and the process continues.

use std::future::ready;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use crate::listener::all_interfaces;
use crate::listener::{self, ConnectionFigures, ListenerSettings, RuntimePool};
use crate::reply::{self, Reply};
use crate::tls::{self, SelfSigned, ServerFiles, TlsError, TlsProfile};
use program::env::NamedStrings;
use program::metrics::{Gauge, MetricsRegistry};
use program::paths::PodPaths;
use rustls::ServerConfig;

/// The port called `metrics` in pods.
pub const PORT: u16 = 8443;

/// Variable that changes the address, so that tests can run in parallel. Not documented for users.
const ADDRESS_VARIABLE: &str = "CDI_WORKERS_TEST_METRICS_ADDR";

/// The name in the certificate. Upstream uses the same name, and no client verifies it.
const CERTIFICATE_NAME: &str = "cloner_target";

/// Time that a client has to send a request header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of connections. Beyond it, idle connections are closed.
const CONNECTIONS: usize = 64;

/// Returns the port on which [`serve_metrics`] listens.
pub fn metrics_port(env: &dyn NamedStrings) -> u16 {
    test_address(env).map_or(PORT, |address| address.port())
}

fn test_address(env: &dyn NamedStrings) -> Option<SocketAddr> {
    env.get(ADDRESS_VARIABLE)?.parse().ok()
}

/// Serves `registry` at the address that CDI's controllers expect, until `stop` is cancelled.
pub async fn serve_metrics(
    env: &dyn NamedStrings,
    registry: MetricsRegistry,
    stop: &CancellationToken,
) {
    let certificate = PodPaths::from_env(env).metrics_certs();
    let addresses = test_address(env).map_or_else(|| all_interfaces(PORT), |address| vec![address]);
    log_start(try_start(&addresses, registry, stop.clone(), Some(&certificate)).await);
}

/// Serves `registry` in a separate task on the first of `addresses` that can be bound, until
/// `stop` is cancelled. Returns the address, or `None` after a warning if no endpoint could be
/// started.
pub async fn start_endpoint(
    addresses: &[SocketAddr],
    registry: MetricsRegistry,
    stop: CancellationToken,
) -> Option<SocketAddr> {
    log_start(try_start(addresses, registry, stop, None).await)
}

fn log_start(started: Result<SocketAddr, String>) -> Option<SocketAddr> {
    match started {
        Ok(address) => {
            tracing::info!(%address, "serving metrics");
            Some(address)
        }
        Err(error) => {
            // Progress reports matter less than the work itself, so the process continues
            // (contract §0.7).
            tracing::warn!(%error, "continuing without metrics");
            None
        }
    }
}

/// Returns the TLS settings with the certificate in `folder`, which may be replaced. If it is
/// missing or cannot be used, generates a self-signed certificate, because without metrics a
/// controller would not see the progress.
async fn tls_config(folder: Option<&Path>) -> Result<watch::Receiver<Arc<ServerConfig>>, TlsError> {
    let files = folder.map(|folder| ServerFiles {
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
        client_ca: None,
    });
    if let Some(files) = files.filter(|files| files.certificate.exists() || files.key.exists()) {
        let path = files.certificate.clone();
        let (_, profile) = watch::channel(TlsProfile::default());
        match tls::follow_files(files, Gauge::default(), profile).await {
            Ok(followed) => return Ok(followed),
            Err(error) => tracing::warn!(
                "serving metrics with a self-signed certificate, because {} or its key cannot be used: {error}",
                path.display()
            ),
        }
    }
    let generated = SelfSigned::generate(CERTIFICATE_NAME)?.server_config()?;
    Ok(watch::channel(Arc::new(generated)).1)
}

async fn try_start(
    addresses: &[SocketAddr],
    registry: MetricsRegistry,
    stop: CancellationToken,
    folder: Option<&Path>,
) -> Result<SocketAddr, String> {
    let tls = tls_config(folder).await.map_err(|error| error.to_string())?;
    let socket = TcpListener::bind(addresses).await;
    let bound = socket.and_then(|socket| Ok((socket.local_addr()?, socket)));
    let (address, socket) = bound.map_err(|error| {
        let tried: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        format!("cannot listen on {}: {error}", tried.join(" or "))
    })?;
    let settings = ListenerSettings {
        tls,
        connections: CONNECTIONS,
        header_timeout: HEADER_TIMEOUT,
        lanes: RuntimePool::default(),
        figures: ConnectionFigures::default(),
    };
    tokio::spawn(listener::serve(socket, settings, stop, move |_, _| {
        ready(metrics_reply(&registry))
    }));
    Ok(address)
}

fn metrics_reply(registry: &MetricsRegistry) -> Reply {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    let mut reply = reply::typed_reply(StatusCode::OK, content_type, registry.encode_page());
    // The connection is closed after each scrape: scrapes are seconds apart, which does not
    // justify an open connection between them.
    let close = HeaderValue::from_static("close");
    reply.headers_mut().insert(header::CONNECTION, close);
    reply
}
