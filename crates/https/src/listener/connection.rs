//! Serves one connection: its handshake and its requests.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use program::logging::LogThrottle;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connection_table::ConnectionSlot;
use super::flush_tracker::FlushTracker;
use super::framing::FramingGuard;
use super::handshake::{self, HelloReader};
use super::{Peer, RequestGuard};
use crate::tls;

/// Log lines about clients that are refused in the TLS handshake.
static FAILED_HANDSHAKES: LogThrottle = LogThrottle::new();

/// Maximum duration of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of bytes that are read ahead of a handler. With more, the data of eight
/// concurrent uploads would not fit into the CPU caches.
const READ_BYTES: usize = 128 << 10;

/// Maximum size in bytes of a request head, and of the trailers of a request. A token takes 1 KB,
/// and an unauthenticated client can hold one head on each of its connections.
const HEAD_BYTES: u32 = 16 << 10;

/// Bytes of an HTTP/2 body that a client may send ahead of the handler.
const WINDOW_BYTES: u32 = 1 << 20;

/// Maximum number of concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 16;

/// Time without a frame after which an HTTP/2 client is sent a PING. If the client does not answer
/// within the same time, the connection is closed.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Time that an idle connection has to send the rest of its last response when the listener stops.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// An error from any layer of a connection, logged in one line.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(super) struct HttpsConnection {
    pub(super) address: SocketAddr,
    pub(super) slot: ConnectionSlot,
    pub(super) tls: watch::Receiver<Arc<ServerConfig>>,
    pub(super) header_timeout: Duration,
    pub(super) stop: CancellationToken,
}

impl HttpsConnection {
    pub(super) async fn serve_stream<H, F, B>(self, stream: TcpStream, handler: H)
    where
        H: Fn(Peer, Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let address = self.address;
        program::sockets::prepare_socket(&stream);
        let handshake = timeout(HANDSHAKE_TIMEOUT, async {
            // A connection counts as a handshake only from its first byte on. Before that it is
            // silent, and silent connections are the first to be closed when the table is full.
            handshake::first_byte(&stream).await?;
            self.slot.begin_handshake();
            // Boxed, like the HTTP future below: a task is as large as the largest future that it
            // awaits.
            Box::pin(handshake::accept_tls(stream, &self.tls)).await
        });
        let stream = match self.stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => stream,
            Some(Ok(Err(error))) => {
                return FAILED_HANDSHAKES.log(|omitted| {
                    tracing::info!(omitted, "TLS handshake error from {address}: {error}");
                });
            }
            Some(Err(_)) => {
                return tracing::debug!(%address, "a client did not complete its TLS handshake");
            }
            None => return,
        };
        self.slot.finish_handshake();
        if let Err(error) = Box::pin(self.serve_requests(stream, handler)).await {
            tracing::debug!(%address, error = program::report::error_chain(&*error), "a connection failed");
        }
    }

    async fn serve_requests<H, F, B>(
        self,
        stream: tls::Stream<HelloReader<TcpStream>>,
        handler: H,
    ) -> Result<(), BoxError>
    where
        H: Fn(Peer, Request<Incoming>) -> F + Send + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        // The protocol is the one negotiated in TLS. It must not depend on the first bytes,
        // because the client controls them.
        let is_http2 = stream.alpn_protocol() == Some(tls::ALPN_HTTP2);
        let certificate = stream.peer_certificate().cloned();
        let (address, slot) = (self.address, self.slot.clone());
        let service = service_fn(move |request| {
            let guard = RequestGuard::new(&slot);
            let peer =
                Peer { address, certificate: certificate.clone(), request: Arc::clone(&guard) };
            // Boxed: a future that is awaited inside another future takes up its space there
            // twice, and the proxy's future was 14 KB.
            let answer = Box::pin(handler(peer, request));
            async move {
                // The body owns the guard: the request counts as in progress while the connection
                // reads from its body.
                let keep = move |error: B::Error| {
                    let _request = &guard;
                    error
                };
                Ok::<_, Infallible>(answer.await.map(|body| body.map_err(keep)))
            }
        });
        let stream = FlushTracker::new(stream, self.slot.clone());
        if is_http2 {
            let mut connection =
                pin!(http2_builder().serve_connection(TokioIo::new(stream), service));
            tokio::select! {
                ended = self.drive_connection(connection.as_mut()) => return Ok(ended?),
                () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            self.last_answers(connection.as_mut()).await
        } else {
            // Only HTTP/1.1 needs the guard: in HTTP/2, frames mark the end of a body.
            let io = TokioIo::new(FramingGuard::new(stream));
            let mut connection =
                pin!(http1_builder(self.header_timeout).serve_connection(io, service));
            tokio::select! {
                ended = self.drive_connection(connection.as_mut()) => return Ok(ended?),
                () = self.stop.cancelled() => connection.as_mut().graceful_shutdown(),
            }
            self.last_answers(connection.as_mut()).await
        }
    }

    /// Drives a connection and lets its slot detect when responses have been sent.
    async fn drive_connection<C: Future + Unpin>(&self, mut connection: C) -> C::Output {
        poll_fn(|cx| {
            self.slot.poll_connection(cx, |cx| std::pin::Pin::new(&mut connection).poll(cx))
        })
        .await
    }

    /// Waits until a connection with requests in progress ends by itself. Any other connection is
    /// closed after a short time, because a client could otherwise keep it open by sending only
    /// half a header.
    async fn last_answers<E: Into<BoxError>>(
        &self,
        connection: impl Future<Output = Result<(), E>> + Unpin,
    ) -> Result<(), BoxError> {
        let ending = self.drive_connection(connection);
        if self.slot.is_busy() {
            return ending.await.map_err(Into::into);
        }
        match timeout(LAST_WORDS, ending).await {
            Ok(ended) => ended.map_err(Into::into),
            Err(_) => Ok(()),
        }
    }
}

fn http1_builder(header_timeout: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_header_size(HEAD_BYTES as usize)
        .max_buf_size(READ_BYTES);
    builder
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(HEAD_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}
