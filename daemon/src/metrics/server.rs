//! The HTTPS endpoint that CDI's controllers and Prometheus scrape.
//!
//! Any path and method is answered with the text of the registry. The work does not depend on it: whatever
//! goes wrong is logged and the process continues.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::registry::Registry;
use crate::tls::{SelfSigned, TlsError};

/// The port that pods name `metrics`.
pub const PORT: u16 = 8443;

/// The name in the certificate. Upstream's, and nobody verifies it.
const CERTIFICATE_NAME: &str = "cloner_target";

/// How long a client may take for its TLS handshake, and again for its request's header.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that a connection may live: a client that does not read its answer is dropped.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// How many clients are served at a time; more wait in the listen queue.
const MAX_CONNECTIONS: usize = 16;

/// How long to pause when no connection can be accepted (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All interfaces on [`PORT`]: IPv6 and IPv4 together, or IPv4 alone on a node without IPv6.
pub fn addresses() -> [SocketAddr; 2] {
    [
        SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT),
        SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT),
    ]
}

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("cannot listen on {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("no address to listen on")]
    NoAddress,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Serves `registry` on the first of `addresses` that can be bound, in tasks of their own, until `stop` is
/// cancelled. Returns the address, or `None` after a warning when there can be no endpoint.
pub async fn start(
    addresses: &[SocketAddr],
    registry: Registry,
    stop: CancellationToken,
) -> Option<SocketAddr> {
    match try_start(addresses, registry, stop).await {
        Ok(address) => {
            tracing::info!(%address, "serving metrics");
            Some(address)
        }
        Err(error) => {
            tracing::warn!(%error, "continuing without metrics");
            None
        }
    }
}

async fn try_start(
    addresses: &[SocketAddr],
    registry: Registry,
    stop: CancellationToken,
) -> Result<SocketAddr, StartError> {
    let tls = SelfSigned::generate(CERTIFICATE_NAME)?.server_config()?;
    let (listener, address) = bind(addresses).await?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    tokio::spawn(async move {
        stop.run_until_cancelled(accept(listener, acceptor, registry))
            .await
    });
    Ok(address)
}

/// Linux serves IPv4 on `[::]` too, unless `net.ipv6.bindv6only` says otherwise.
async fn bind(addresses: &[SocketAddr]) -> Result<(TcpListener, SocketAddr), StartError> {
    let mut failure = StartError::NoAddress;
    for &address in addresses {
        let bound = TcpListener::bind(address)
            .await
            .and_then(|listener| listener.local_addr().map(|address| (listener, address)));
        match bound {
            Ok(bound) => return Ok(bound),
            Err(source) => failure = StartError::Bind { address, source },
        }
    }
    Err(failure)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, registry: Registry) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a metrics connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = serve(stream, acceptor.clone(), registry.clone());
        tokio::spawn(async move {
            if tokio::time::timeout(CONNECTION_TIMEOUT, connection)
                .await
                .is_err()
            {
                tracing::debug!("dropped a metrics connection that took too long");
            }
            drop(slot);
        });
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, registry: Registry) {
    let Ok(Ok(stream)) = tokio::time::timeout(READ_TIMEOUT, acceptor.accept(stream)).await else {
        tracing::debug!("a metrics client did not complete its TLS handshake");
        return;
    };
    let service = service_fn(move |_: Request<Incoming>| {
        let response = respond(&registry);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_TIMEOUT)
        // A scrape every few seconds is no reason to let clients hold the slots between them.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a metrics connection failed");
    }
}

fn respond(registry: &Registry) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(registry.encode())));
    let content_type = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
