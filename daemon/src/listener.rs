//! A TLS listener for HTTP/1.1 and HTTP/2 that slow or silent clients cannot fill.
//!
//! A connection is *idle* until its handler marks it as engaged, which handlers do for clients that they know. When there
//! are too many connections an idle one of the busiest address is closed for a new one; handshakes and headers have a time limit besides.

mod crowd;
mod framing;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use self::crowd::Crowd;
pub use self::crowd::{Engagement, Place};
use self::framing::Watched;

/// How long a client may take for its TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that a header may have, and that are read ahead of a handler at most.
const READ_BYTES: usize = 128 << 10;

/// Bytes of an HTTP/2 body that a client may send ahead of the handler.
const WINDOW_BYTES: u32 = 1 << 20;

/// Requests that a client may have in progress on one HTTP/2 connection.
const MAX_STREAMS: u32 = 16;

/// After so long without a frame an HTTP/2 client is asked for a sign of life, and after as long again it is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long the end of an answer may take to leave when the listener stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long to pause when no connection can be accepted (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a listener allows.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The TLS of new connections: a change holds for the next handshake. Its ALPN decides about HTTP/2.
    pub tls: watch::Receiver<Arc<ServerConfig>>,
    /// How many connections there may be before idle ones are closed. Each idle one costs about 40 KiB.
    pub connections: usize,
    /// How long a client may take for the header of a request, the time between two requests included.
    pub header_timeout: Duration,
}

impl Settings {
    /// For a server with few clients, whose TLS does not change.
    pub fn fixed(tls: ServerConfig) -> Self {
        Self {
            tls: watch::channel(Arc::new(tls)).1,
            connections: 256,
            header_timeout: Duration::from_secs(30),
        }
    }
}

/// The client at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The certificate that it has shown and that an authority of ours has signed.
    pub certificate: Option<CertificateDer<'static>>,
    /// Its connection among the others.
    pub place: Place,
}

/// Serves every request on `socket` with `handler`, until `stop` is cancelled; then no new request is taken, and this
/// returns when those in progress are answered.
pub async fn serve<H, F, B>(socket: TcpListener, settings: Settings, stop: CancellationToken, handler: H)
where
    H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let crowd = Crowd::new(settings.connections);
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
        let place = crowd.enter(address.ip().to_canonical());
        let connection = Connection {
            address,
            place: place.clone(),
            header_timeout: settings.header_timeout,
            stop: stop.clone(),
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&settings.tls.borrow()));
        let serving = connection.serve(stream, acceptor, handler.clone());
        let alive = alive.clone();
        tokio::spawn(async move {
            if place.until_closed(serving).await.is_none() {
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

struct Connection {
    address: SocketAddr,
    place: Place,
    header_timeout: Duration,
    stop: CancellationToken,
}

impl Connection {
    async fn serve<H, F, B>(self, stream: TcpStream, acceptor: TlsAcceptor, handler: H)
    where
        H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let address = self.address;
        crate::sockets::prepare(&stream);
        let handshake = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
        let stream = match self.stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => stream,
            Some(Ok(Err(error))) => return tracing::info!("TLS handshake error from {address}: {error}"),
            Some(Err(_)) => return tracing::debug!(%address, "a client did not complete its TLS handshake"),
            None => return,
        };
        if let Err(error) = self.answer(stream, handler).await {
            tracing::debug!(%address, error = crate::report::chain(&*error), "a connection failed");
        }
    }

    async fn answer<H, F, B>(
        self,
        stream: TlsStream<TcpStream>,
        handler: H,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
    where
        H: Fn(Peer, Request<Incoming>) -> F + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (_, session) = stream.get_ref();
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let peer = Peer {
            address: self.address,
            certificate: session
                .peer_certificates()
                .and_then(<[_]>::first)
                .map(|certificate| certificate.clone().into_owned()),
            place: self.place,
        };
        // Requests that are being answered.
        let active = Arc::new(());
        let answering = Arc::clone(&active);
        let service = service_fn(move |request| {
            let (answer, guard) = (handler(peer.clone(), request), Arc::clone(&answering));
            async move {
                let answer = answer.await;
                drop(guard);
                Ok::<_, Infallible>(answer)
            }
        });
        // The service has one, and so have we.
        let is_active = || Arc::strong_count(&active) > 2;
        if is_http2 {
            let mut connection = pin!(http2().serve_connection(TokioIo::new(stream), service));
            tokio::select! {
                ended = connection.as_mut() => return Ok(ended?),
                () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            last_answers(connection, is_active()).await
        } else {
            let io = TokioIo::new(Watched::new(stream));
            let mut connection = pin!(http1(self.header_timeout).serve_connection(io, service));
            tokio::select! {
                ended = connection.as_mut() => return Ok(ended?),
                () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            last_answers(connection, is_active()).await
        }
    }
}

/// Lets a connection end by itself when it has something left to say, and soon when not: a client that has sent half a
/// header would keep it open.
async fn last_answers<E>(
    connection: impl Future<Output = Result<(), E>>,
    is_active: bool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if is_active {
        return connection.await.map_err(Into::into);
    }
    match timeout(LAST_WORDS, connection).await {
        Ok(ended) => ended.map_err(Into::into),
        Err(_) => Ok(()),
    }
}

fn http1(header_timeout: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(READ_BYTES);
    builder
}

fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(64 << 10)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}:{port}: {source}")]
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
    bound.map_err(|source| BindError {
        address: address.to_owned(),
        port,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_an_address_both_families_are_listened_on() {
        let socket = bind("", 0).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        for host in ["127.0.0.1", "::1"] {
            TcpStream::connect((host, port)).await.unwrap();
        }
        let taken = bind("127.0.0.1", port).await.unwrap_err();
        assert!(
            taken
                .to_string()
                .starts_with(&format!("cannot listen on 127.0.0.1:{port}: "))
        );
    }
}
