//! The life of a proxy process: it listens until a signal stops it, and then lets running uploads
//! finish.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use https::listener::{self, BindError, ListenerSettings, RuntimePool};
use https::metrics;
use https::tls::{self, TlsError};
use program::signal::ShutdownRequest;
use program::start::{self, ProcessStartError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::answer::{self, ProxyState};
use crate::config::Config;
use crate::figures::ProxyMetrics;
use crate::limits::{UploadLimiter, UploadLimits};
use crate::memory::MemoryShares;
use crate::upstream::UpstreamServers;

/// Maximum number of connections. Beyond it, idle connections are closed.
const CONNECTIONS: usize = 4096;

/// Time limit for receiving the header of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Reasons why a proxy could not start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyStartError {
    /// The certificate for the listener cannot be used.
    #[error("cannot use the server's certificate: {0}")]
    Tls(#[from] TlsError),
    /// The listener cannot be opened.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// The system refuses to create threads.
    #[error(transparent)]
    Process(#[from] ProcessStartError),
}

/// Serves until a signal arrives, and then until the last upload has ended. Calls `ready` with the
/// address of the socket once the proxy listens.
pub async fn run(
    config: Config,
    shutdown: &ShutdownRequest,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ProxyStartError> {
    let shares = memory_shares(&config.allowed);
    let figures = ProxyMetrics::default();
    let expiry = figures.certificate_expiry.clone();
    let settings = ListenerSettings {
        tls: tls::follow_files(config.tls, expiry, config.profile).await?,
        connections: max_connections(raise_file_limit(), shares, config.allowed.uploads),
        header_timeout: HEADER_TIMEOUT,
        lanes: RuntimePool::new(start::build_runtimes())?,
        figures: figures.connections.clone(),
    };
    let socket = listener::bind(&config.address, config.port).await?;
    let proxy = Arc::new(ProxyState {
        verifier: config.verifier,
        volumes: config.volumes,
        upstreams: UpstreamServers::new(config.identity, config.dial),
        limits: UploadLimiter::new(config.allowed, shares.map(|shares| shares.uploads)),
        figures: figures.clone(),
        stop: shutdown.cancel_token().clone(),
    });
    if !config.metrics.is_empty() {
        let registry = figures.registry.clone();
        // The endpoint runs until the process ends, so that the metrics include the last uploads
        // too.
        metrics::start_endpoint(
            &config.metrics,
            registry,
            tokio_util::sync::CancellationToken::new(),
        )
        .await;
    }
    sandbox::close_listening();
    if let Ok(address) = socket.local_addr() {
        tracing::info!("Running server on {address}");
        ready(address);
    }
    let serving =
        listener::serve(socket, settings, shutdown.cancel_token().clone(), move |peer, request| {
            answer::answer_request(Arc::clone(&proxy), peer, request)
        });
    let goodbye = async {
        shutdown.cancel_token().cancelled().await;
        tracing::info!("no new uploads; waiting for {} in progress", figures.active.value());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        () = goodbye => {}
    }
    Ok(())
}

/// Returns the numbers of clients that fit into the memory limit of this process, or `None` if
/// there is no limit.
fn memory_shares(allowed: &UploadLimits) -> Option<MemoryShares> {
    let limit_bytes = program::cgroup::memory_bytes()?;
    let shares = MemoryShares::from_limit(limit_bytes);
    match allowed.uploads {
        Some(given) if given > shares.uploads => tracing::warn!(
            "the memory limit of {limit_bytes} bytes is enough for {} uploads at a time if their upload servers do not read, but \
             {given} are allowed",
            shares.uploads
        ),
        Some(_) => {}
        None => tracing::info!(
            "the memory limit of {limit_bytes} bytes allows {} uploads at a time",
            shares.uploads
        ),
    }
    Some(shares)
}

/// Returns the maximum number of connections, given the limits of open files and memory. Each
/// upload needs two file descriptors.
fn max_connections(
    files: u64,
    shares: Option<MemoryShares>,
    uploads: Option<NonZeroUsize>,
) -> usize {
    let files = usize::try_from(files / 3).unwrap_or(CONNECTIONS);
    let memory = shares.map_or(CONNECTIONS, |shares| {
        let uploads = uploads.unwrap_or(shares.uploads);
        shares.others.saturating_add(uploads.get())
    });
    files.min(memory).clamp(16, CONNECTIONS)
}

/// Raises the limit of open files to the highest value that the administrator allows. Returns the
/// limit in effect.
pub(crate) fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current == limit.maximum || setrlimit(Resource::Nofile, raised).is_ok() {
        return limit.maximum.unwrap_or(u64::MAX);
    }
    limit.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_limit_leaves_files_and_memory_for_uploads() {
        let shares = |mib: u64| Some(MemoryShares::from_limit(mib << 20));
        assert_eq!(max_connections(1024, None, None), 341);
        assert_eq!(max_connections(10, None, None), 16);
        assert_eq!(max_connections(u64::MAX, None, None), CONNECTIONS);
        assert_eq!(max_connections(u64::MAX, shares(64), None), 50);
        assert_eq!(max_connections(u64::MAX, shares(64), NonZeroUsize::new(100)), 132);
        assert_eq!(max_connections(100, shares(64), None), 33);
        assert_eq!(max_connections(1024, shares(16), None), 16);
    }
}
