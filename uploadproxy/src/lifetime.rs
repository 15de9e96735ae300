//! The life of a proxy: listens until it is told to stop, and lets running uploads finish.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use app::start::{self, CannotStart};
use daemon::listener::{self, BindError, Lanes, Settings};
use daemon::metrics::server as metrics;
use daemon::signal::Shutdown;
use daemon::tls::TlsError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::answer::{self, Proxy};
use crate::certificates;
use crate::config::Config;
use crate::figures::Figures;
use crate::limits::Limits;
use crate::upstream::Upstreams;

/// Connections before idle ones are closed; 40 KiB each.
const CONNECTIONS: usize = 4096;

/// Time limit for the header of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A reason why a proxy did not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cannot use the server's certificate: {0}")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Listen(#[from] BindError),
    #[error(transparent)]
    Process(#[from] CannotStart),
}

/// Serves until a signal, and then until the last upload has ended. `ready` is told the socket's address.
pub(crate) async fn run(
    config: Config,
    shutdown: &Shutdown,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), StartError> {
    let settings = Settings {
        tls: certificates::follow(config.tls, config.profile).await?,
        connections: connections(raise_file_limit()),
        header_timeout: HEADER_TIMEOUT,
        lanes: Lanes::new(start::lanes())?,
    };
    let socket = listener::bind(&config.address, config.port).await?;
    let proxy = Arc::new(Proxy {
        verifier: config.verifier,
        volumes: config.volumes,
        upstreams: Upstreams::new(config.identity, config.dial),
        limits: Limits::new(config.allowed),
        figures: Figures::default(),
        stop: shutdown.token().clone(),
    });
    if !config.metrics.is_empty() {
        let registry = proxy.figures.registry.clone();
        // Until the process ends: the last uploads are of interest, too.
        metrics::start(
            &config.metrics,
            registry,
            tokio_util::sync::CancellationToken::new(),
        )
        .await;
    }
    if let Ok(address) = socket.local_addr() {
        tracing::info!("Running server on {address}");
        ready(address);
    }
    let figures = proxy.figures.clone();
    let serving = listener::serve(
        socket,
        settings,
        shutdown.token().clone(),
        move |peer, request| answer::answer(Arc::clone(&proxy), peer, request),
    );
    let goodbye = async {
        shutdown.token().cancelled().await;
        tracing::info!(
            "no new uploads; waiting for {} in progress",
            figures.active.value()
        );
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = serving => {}
        () = goodbye => {}
    }
    Ok(())
}

/// Each upload needs two files.
fn connections(files: u64) -> usize {
    usize::try_from(files / 3)
        .unwrap_or(CONNECTIONS)
        .clamp(16, CONNECTIONS)
}

/// Lets this process open as many files as its administrator allows; returns how many.
fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current == limit.maximum || setrlimit(Resource::Nofile, raised).is_ok() {
        return limit.maximum.unwrap_or(u64::MAX);
    }
    limit.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_files_left_for_uploads() {
        assert_eq!(connections(1024), 341);
        assert_eq!(connections(10), 16);
        assert_eq!(connections(u64::MAX), CONNECTIONS);
    }
}
