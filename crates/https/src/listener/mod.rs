//! A TLS listener for HTTP/1.1 and HTTP/2 that slow or silent clients cannot fill.
//!
//! A connection is *idle* until its handler marks it as engaged, which handlers do for clients that they know. When there
//! are too many connections an idle one of the busiest address is closed for a new one; handshakes are a part of them at most, hold
//! little, and have a time limit, as headers have. Until the ClientHello is whole a connection costs 2 KiB and what was sent of it; an
//! idle one in TLS costs 36 KiB.

mod connection;
mod connection_table;
mod framing;
mod handshake;
mod response_body;
mod runtime_pool;

use std::io;
use std::net::SocketAddr;
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
use self::connection_table::{ConnectionSlot, ConnectionTable, RequestInProgress};
pub use self::runtime_pool::RuntimePool;

/// Pause when no connection can be accepted (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The limits of a listener.
#[derive(Debug)]
pub struct ListenerSettings {
    /// The TLS of new connections: a change holds for the next handshake. Its ALPN decides about HTTP/2.
    pub tls: watch::Receiver<Arc<ServerConfig>>,
    /// Connections that there may be before idle ones are closed, handshakes included.
    pub connections: usize,
    /// Time that a client has for the header of a request, the time between two requests included.
    pub header_timeout: Duration,
    /// Threads for the connections. Without any, these run in the runtime that accepts them.
    pub lanes: RuntimePool,
    /// Counts of connections.
    pub figures: ConnectionFigures,
}

impl ListenerSettings {
    /// For a server with few clients, whose TLS does not change.
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

/// The client at the other end of a connection, and its request.
#[derive(Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The certificate that it has shown and that an authority of ours has signed.
    pub certificate: Option<CertificateDer<'static>>,
    request: Arc<RequestGuard>,
}

impl Peer {
    /// From now on until the answer to this request has left, the connection is not closed for another one. A task that
    /// goes on reading the request behind its answer keeps a clone.
    pub fn hold_active(&self) -> ActiveGuard {
        self.request.engagement.get_or_init(|| self.request.slot.hold_active()).clone()
    }

    /// The guard that [`Self::hold_active`] has returned, if it was called.
    pub fn active_guard(&self) -> Option<ActiveGuard> {
        self.request.engagement.get().cloned()
    }
}

/// A request until its answer is handed over to the connection.
#[derive(Debug)]
struct RequestGuard {
    slot: ConnectionSlot,
    engagement: OnceLock<ActiveGuard>,
    _in_progress: RequestInProgress,
}

impl RequestGuard {
    fn new(slot: &ConnectionSlot) -> Arc<Self> {
        Arc::new(Self { slot: slot.clone(), engagement: OnceLock::new(), _in_progress: slot.begin_request() })
    }
}

/// Serves every request on `socket` with `handler`, until `stop` is cancelled; then no new request is taken, and this
/// returns when those in progress are answered.
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
    // Every connection holds a sender: when the last is gone, all are closed.
    let (alive, mut gone) = mpsc::channel::<()>(1);
    while let Some(accepted) = stop.run_until_cancelled(socket.accept()).await {
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = table.take_slot() else {
            tracing::debug!(%address, "refused a connection: all others are in use");
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
                tracing::debug!(%address, "closed an idle connection: there are too many");
            }
            drop(alive);
        });
    }
    drop(socket);
    drop(alive);
    // Never a message: this ends with the last sender.
    gone.recv().await;
}

/// A word about a connection that ends in a panic: nobody else waits for its task. The panic itself is in the log of a higher level.
struct PanicLogger(SocketAddr);

impl Drop for PanicLogger {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(address = %self.0, "internal error, please report it: a connection was given up");
        }
    }
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}:{port}: {source}; choose another address or port")]
pub struct BindError {
    address: String,
    port: u16,
    source: io::Error,
}

/// Listens on `address` and `port`; without an address on all, IPv6 and IPv4 together where the node has IPv6.
pub async fn bind(address: &str, port: u16) -> Result<TcpListener, BindError> {
    let bound = if address.is_empty() {
        match TcpListener::bind(("::", port)).await {
            Ok(socket) => Ok(socket),
            Err(_) => TcpListener::bind(("0.0.0.0", port)).await,
        }
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
    async fn without_an_address_both_families_are_listened_on() {
        let socket = bind("", 0).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        for host in ["127.0.0.1", "::1"] {
            TcpStream::connect((host, port)).await.unwrap();
        }
        let taken = bind("127.0.0.1", port).await.unwrap_err();
        assert!(taken.to_string().starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")));
    }
}
