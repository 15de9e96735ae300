//! A TLS listener for HTTP/1.1 and HTTP/2 whose resources cannot be exhausted by slow or silent
//! clients.
//!
//! A connection is *idle* until its handler marks it as active, which handlers do once they have
//! identified the client. When there are too many connections, the oldest idle one is closed to
//! make room for a new one (see `connection_table`). Handshakes are limited to a share of all
//! connections, use little memory and have a time limit. Request headers have a time limit too.
//! Until the ClientHello is complete, a connection costs 2 KiB plus the bytes received; an idle
//! TLS connection costs 36 KiB.

mod connection;
mod connection_table;
mod flush_tracker;
#[doc(hidden)] // for the fuzz targets
pub mod framing;
mod handshake;
mod runtime_pool;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::connection::HttpsConnection;
pub use self::connection_table::{ActiveGuard, ConnectionFigures};
use self::connection_table::{ConnectionSlot, ConnectionTable};
pub use self::runtime_pool::RuntimePool;

/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The settings and limits of a listener.
#[derive(Debug)]
pub struct ListenerSettings {
    /// TLS configuration for new connections. A change applies to all later handshakes. The ALPN
    /// list in it decides whether HTTP/2 is offered.
    pub tls: watch::Receiver<Arc<ServerConfig>>,
    /// Number of connections, including handshakes, beyond which idle ones are closed.
    pub connections: usize,
    /// Time that a client has to send the header of a request, including the time between two
    /// requests.
    pub header_timeout: Duration,
    /// Runtimes that serve the connections. If the pool is empty, the runtime that accepts
    /// connections also serves them.
    pub lanes: RuntimePool,
    /// Metrics of the connections.
    pub figures: ConnectionFigures,
}

impl ListenerSettings {
    /// Settings for a server with few clients and a fixed TLS configuration.
    pub fn with_fixed_tls(tls: ServerConfig) -> Self {
        Self {
            tls: watch::channel(Arc::new(tls)).1,
            connections: 256,
            header_timeout: Duration::from_secs(30),
            lanes: RuntimePool::default(),
            figures: ConnectionFigures::default(),
        }
    }
}

/// The client of a connection, as seen by the handler of one request.
#[derive(Debug)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The client's certificate, if it presented one that is signed by a trusted authority.
    pub certificate: Option<CertificateDer<'static>>,
    request: Arc<RequestGuard>,
}

impl Peer {
    /// Protects the connection from eviction until the response to this request has been sent. A
    /// task that continues to read the request body after the response must keep a clone of the
    /// guard.
    pub fn hold_active(&self) -> ActiveGuard {
        self.request.engagement.get_or_init(|| self.request.slot.hold_active()).clone()
    }

    /// Returns the guard that [`Self::hold_active`] created, if it was called.
    pub(crate) fn active_guard(&self) -> Option<ActiveGuard> {
        self.request.engagement.get().cloned()
    }
}

/// State of a request until the connection has read the whole response body.
#[derive(Debug)]
struct RequestGuard {
    slot: ConnectionSlot,
    engagement: OnceLock<ActiveGuard>,
}

impl RequestGuard {
    fn new(slot: &ConnectionSlot) -> Arc<Self> {
        slot.begin_request();
        Arc::new(Self { slot: slot.clone(), engagement: OnceLock::new() })
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.slot.end_request();
    }
}

/// Serves every request on `socket` with `handler` until `stop` is cancelled. After that, no new
/// requests are accepted, and the function returns when the requests in progress have been
/// answered.
pub async fn serve<H, F, B>(
    socket: TcpListener,
    settings: ListenerSettings,
    stop: CancellationToken,
    handler: H,
) where
    H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let table = ConnectionTable::new(settings.connections, settings.figures);
    // Every connection holds a sender. The channel closes when the last connection has dropped its
    // sender.
    let (alive, mut gone) = mpsc::channel::<()>(1);
    while let Some(accepted) = stop.run_until_cancelled(socket.accept()).await {
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                // If too many files are open, accept fails again at once. Without a pause, this
                // loop would use a whole CPU.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = table.take_slot() else {
            tracing::debug!(%address, "refused a connection: the limit is reached, and no connection is idle");
            continue;
        };
        let connection = HttpsConnection {
            address,
            slot: slot.clone(),
            tls: settings.tls.clone(),
            header_timeout: settings.header_timeout,
            stop: stop.clone(),
        };
        let (handler, alive) = (handler.clone(), alive.clone());
        settings.lanes.spawn_connection(stream, async move |stream| {
            let _crash = PanicLogger(address);
            let serving = Box::pin(connection.serve_stream(stream, handler));
            if slot.until_closed(serving).await.is_none() {
                tracing::debug!(%address, "closed an idle connection: too many are open");
            }
            drop(alive);
        });
    }
    // The socket is closed before the wait, so that new clients are refused instead of waiting in
    // the backlog.
    drop(socket);
    drop(alive);
    // No message is ever sent: this returns when the last sender is dropped.
    gone.recv().await;
}

/// Logs that a panic ended a connection, because no other task waits for the connection's task.
/// The panic message itself is logged by the hook of `program::panics`.
struct PanicLogger(SocketAddr);

impl Drop for PanicLogger {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(address = %self.0, "internal error, please report it: a connection was dropped");
        }
    }
}

/// The error for an address that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}:{port}: {source}; choose another address or port")]
pub struct BindError {
    address: String,
    port: u16,
    source: io::Error,
}

/// Returns all interfaces on `port`: first IPv6 and IPv4 together, then IPv4 alone for a node
/// without IPv6. On Linux `[::]` accepts IPv4 too, unless `net.ipv6.bindv6only` is set.
pub fn all_interfaces(port: u16) -> Vec<SocketAddr> {
    let all = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    all.map(|ip| SocketAddr::new(ip, port)).into()
}

/// Listens on `address` and `port`. An empty address means all addresses.
pub async fn bind(address: &str, port: u16) -> Result<TcpListener, BindError> {
    let bound = if address.is_empty() {
        TcpListener::bind(&*all_interfaces(port)).await
    } else {
        TcpListener::bind((address, port)).await
    };
    bound.map_err(|source| BindError { address: address.to_owned(), port, source })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn without_an_address_both_families_are_served() {
        let socket = bind("", 0).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        for host in ["127.0.0.1", "::1"] {
            TcpStream::connect((host, port)).await.unwrap();
        }
        let taken = bind("127.0.0.1", port).await.unwrap_err();
        assert!(taken.to_string().starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")));
    }
}
