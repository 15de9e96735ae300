//! The base of all scripted servers: a loopback port and a runtime that ends when the server is
//! dropped, and a server of HTTP/1.1 whose responses a [`Handler`] writes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::fail::OrFail;
use crate::wire::{self, Request, Stream};

/// Bytes of a body that are written at a time. They are few, so that the rate of a slow server is
/// even.
const WRITE_BYTES: usize = 16 * 1024;

/// The fault of the response to one GET. Offsets count the bytes of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The connection is closed before this byte.
    CutAt(u64),
    /// The connection is reset (TCP RST) before this byte.
    ResetAt(u64),
    /// From this byte on nothing is sent, and the connection stays open.
    StallAt(u64),
    /// A response of this status, with `Retry-After` if given, instead of the body.
    Status(u16, Option<String>),
    /// The connection is closed without a response.
    Refuse,
    /// The connection stays open without a response.
    Silence,
}

/// A server whose connections are served by its own runtime. It stops when dropped.
pub(crate) struct ScriptedServer {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl ScriptedServer {
    /// Serves each connection to a free port with `serve`. Errors of a connection are ignored: its
    /// peer notices them.
    pub(crate) fn start<F: Future<Output: Send> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> io::Result<Self> {
        // This uses no runtime, because a test that runs in one cannot block on another.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).or_fail("a listener");
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(tcp));
            }
        });
        Ok(Self { address, runtime: Some(runtime) })
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Locks what connections share, also after one of them has panicked: its peer noticed that.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the connection for reading requests, over TLS if there is a configuration.
pub(crate) async fn accept(
    tls: Option<&TlsAcceptor>,
    tcp: TcpStream,
) -> io::Result<Box<dyn Stream>> {
    // Head and body are written separately: with Nagle's algorithm the client would wait 40 ms for
    // each response.
    tcp.set_nodelay(true)?;
    Ok(match tls {
        None => Box::new(BufReader::new(tcp)),
        Some(tls) => Box::new(BufReader::new(tls.accept(tcp).await?)),
    })
}

/// Responds to the requests of an [`HttpServer`].
pub trait Handler: Send + Sync + 'static {
    /// Reads the rest of a request, if any, and responds to it. After an error, the connection is
    /// closed.
    fn handle(&self, exchange: &mut Exchange<'_>)
    -> impl Future<Output = io::Result<After>> + Send;
}

/// What happens to a connection after a response.
pub enum After {
    /// The next request is read.
    KeepOpen,
    /// TLS sends a close_notify and TCP a FIN, so the peer sees a clean end.
    Close,
    /// TCP sends a RST.
    Reset,
}

/// A running server on a free loopback port, over HTTP or HTTPS. It stops when dropped.
pub struct HttpServer<H> {
    scheme: &'static str,
    pub(crate) handler: Arc<H>,
    log: Arc<Mutex<Vec<Recorded>>>,
    server: ScriptedServer,
}

/// A request that was received, and its response so far.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The request's head.
    pub request: Request,
    /// The status of the response; 0 if there was none.
    pub status: u16,
    /// Bytes of the body that were written to the connection so far.
    pub body_bytes: u64,
}

impl<H> HttpServer<H> {
    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The URL of `path` (which begins with `/`) on this server.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address())
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.log).clone()
    }

    /// Bytes of all bodies that were written to their connections so far.
    pub fn body_bytes(&self) -> u64 {
        lock(&self.log).iter().map(|request| request.body_bytes).sum()
    }
}

impl<H: Handler> HttpServer<H> {
    /// Starts a server, over HTTPS if there is a configuration.
    pub(crate) fn serve(handler: H, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (handler, log) = (Arc::new(handler), Arc::default());
        let (shared, tls) = ((Arc::clone(&handler), Arc::clone(&log)), tls.map(TlsAcceptor::from));
        let server = ScriptedServer::start(move |tcp| {
            let ((handler, log), tls) = (shared.clone(), tls.clone());
            async move { connection(&*handler, &log, accept(tls.as_ref(), tcp).await?).await }
        })?;
        Ok(Self { scheme, handler, log, server })
    }
}

async fn connection(
    handler: &impl Handler,
    log: &Mutex<Vec<Recorded>>,
    mut client: Box<dyn Stream>,
) -> io::Result<()> {
    while let Some(request) = Request::read(&mut *client).await? {
        let index = {
            let mut log = lock(log);
            log.push(Recorded { request: request.clone(), status: 0, body_bytes: 0 });
            log.len() - 1
        };
        let mut exchange = Exchange { client: &mut *client, request, log, index };
        match handler.handle(&mut exchange).await? {
            After::KeepOpen => {}
            After::Close => return client.shutdown().await,
            // With zero linger, the kernel sends RST when the socket is closed.
            After::Reset => return client.tcp().set_zero_linger(),
        }
    }
    Ok(())
}

/// A request, and the connection for its response.
pub struct Exchange<'c> {
    pub(crate) client: &'c mut dyn Stream,
    pub(crate) request: Request,
    log: &'c Mutex<Vec<Recorded>>,
    index: usize,
}

impl Exchange<'_> {
    /// Reads at most `limit` bytes of the request's body.
    pub(crate) async fn read_body(&mut self, limit: u64) -> io::Result<String> {
        let length = self.request.body_bytes().min(limit);
        let mut body = Vec::new();
        (&mut *self.client).take(length).read_to_end(&mut body).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Writes the head of the response.
    pub(crate) async fn write_head(
        &mut self,
        status: u16,
        headers: &[(String, String)],
    ) -> io::Result<()> {
        self.update(|recorded| recorded.status = status);
        wire::write_head(self.client, status, headers).await?;
        self.client.flush().await
    }

    /// Writes a complete response, with its `Content-Length`.
    pub(crate) async fn respond(
        &mut self,
        status: u16,
        mut headers: Vec<(String, String)>,
        body: &[u8],
    ) -> io::Result<After> {
        headers.push(("content-length".to_owned(), body.len().to_string()));
        self.write_head(status, &headers).await?;
        if self.request.method != "HEAD" {
            wire::write_piece(self.client, body, false).await?;
        }
        Ok(After::KeepOpen)
    }

    /// Writes a piece of a body.
    pub(crate) async fn write_piece(&mut self, piece: &[u8], is_chunked: bool) -> io::Result<()> {
        // Counted before they are written: a client that has received all of them may check the
        // count at once.
        self.update(|recorded| recorded.body_bytes += piece.len() as u64);
        wire::write_piece(self.client, piece, is_chunked).await
    }

    /// Writes a body whose first byte has this `offset` in the object, up to the `fault`. Returns
    /// what happens to the connection if that has ended the body early.
    pub(crate) async fn write_body(
        &mut self,
        (body, offset): (&[u8], u64),
        is_chunked: bool,
        fault: &Fault,
        pace: &Pace,
    ) -> io::Result<Option<After>> {
        let (end, after) = match fault {
            Fault::CutAt(end) | Fault::StallAt(end) => (*end, After::Close),
            Fault::ResetAt(end) => (*end, After::Reset),
            _ => (u64::MAX, After::KeepOpen),
        };
        let allowed = wire::to_usize(end.saturating_sub(offset)).min(body.len());
        let started = Instant::now();
        for piece in body[..allowed].chunks(WRITE_BYTES) {
            self.write_piece(piece, is_chunked).await?;
            pace.pause(piece.len(), started).await;
        }
        if allowed == body.len() {
            return Ok(None);
        }
        if matches!(fault, Fault::StallAt(_)) {
            std::future::pending::<()>().await;
        }
        Ok(Some(after))
    }

    fn update(&self, change: impl FnOnce(&mut Recorded)) {
        change(&mut lock(self.log)[self.index]);
    }
}

/// Limits the rate of one body, or of all that share it.
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// The time at which the rate allowed the bytes so far.
    free_at: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, free_at: Mutex::default() }
    }

    /// Sleeps until the rate allows more than these `bytes` of a body that began at `started`. A
    /// sleep that was too long makes the next one shorter.
    pub(crate) async fn pause(&self, bytes: usize, started: Instant) {
        if let Some(rate) = self.bytes_per_second {
            let pause = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            let free_at = {
                let mut free_at = lock(&self.free_at);
                let begun = free_at.map_or(started, |at| at.max(started));
                *free_at.insert(begun + pause)
            };
            tokio::time::sleep_until(free_at).await;
        }
    }
}
