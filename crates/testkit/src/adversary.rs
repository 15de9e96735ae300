//! An HTTP server whose every response is chosen by the test. It stands in for hostile engines and
//! hypervisors.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::fail::OrFail;
use crate::serving::{self, ScriptedServer};
use crate::wire::{self, Request, Stream};

/// Longest part of a request's body that the test sees.
const BODY_LIMIT_BYTES: u64 = 64 * 1024;

/// A response.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Headers, without those that frame the body.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

/// The body of a response.
#[derive(Debug, Clone)]
pub enum Body {
    /// These bytes, with a `Content-Length`.
    Whole(Bytes),
    /// These bytes in one chunk, followed by the last chunk.
    Chunked(Bytes),
    /// These bytes as a chunk, repeated without end, with this pause between the chunks.
    Endless(Bytes, Duration),
    /// No response at all, not even a head. The connection stays open.
    Silence,
}

impl Reply {
    /// A response of status 200 with this body.
    pub fn of(body: impl Into<Bytes>) -> Self {
        Self::status(200, body)
    }

    /// A response of this status with this body.
    pub fn status(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: Body::Whole(body.into()) }
    }

    /// A response of status 200 whose body is chunked.
    pub fn chunked(body: impl Into<Bytes>) -> Self {
        Self { body: Body::Chunked(body.into()), ..Self::of("") }
    }

    /// A response of status 200 with a body that never ends.
    pub fn endless(piece: impl Into<Bytes>, pause: Duration) -> Self {
        Self { body: Body::Endless(piece.into(), pause), ..Self::of("") }
    }

    /// No response.
    pub fn silence() -> Self {
        Self { body: Body::Silence, ..Self::of("") }
    }

    /// Adds a header.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

type Answer = dyn Fn(&Request, &str) -> Reply + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    tls: Option<TlsAcceptor>,
    seen: Mutex<Vec<(Request, String)>>,
}

impl Shared {
    fn record(&self, request: Request, body: String) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((request, body));
    }
}

/// A running server on a free loopback port. It stops when dropped.
pub struct Adversary {
    scheme: &'static str,
    shared: Arc<Shared>,
    server: ScriptedServer,
}

impl Adversary {
    /// Starts a server that responds to each request with what `answer` returns for the request
    /// and its body.
    pub fn start(answer: impl Fn(&Request, &str) -> Reply + Send + Sync + 'static) -> Self {
        Self::spawn(Box::new(answer), None)
    }

    /// Like [`start`](Self::start), but over HTTPS (see [`crate::certs`]).
    pub fn start_tls(
        answer: impl Fn(&Request, &str) -> Reply + Send + Sync + 'static,
        tls: Arc<rustls::ServerConfig>,
    ) -> Self {
        Self::spawn(Box::new(answer), Some(tls.into()))
    }

    fn spawn(answer: Box<Answer>, tls: Option<TlsAcceptor>) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared { answer, tls, seen: Mutex::default() });
        let serving = Arc::clone(&shared);
        let server = ScriptedServer::start(move |tcp| connection(Arc::clone(&serving), tcp));
        Self { scheme, shared, server: server.or_fail("a server") }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The URL of `path` (which begins with `/`) on this server.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address())
    }

    /// Every request received so far, with its body, in order of arrival.
    pub fn requests(&self) -> Vec<(Request, String)> {
        let seen = self.shared.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn connection(shared: Arc<Shared>, tcp: TcpStream) -> io::Result<()> {
    // Head and body are written separately: with Nagle's algorithm the client would wait 40 ms for
    // each response.
    tcp.set_nodelay(true)?;
    let mut stream = serving::accept(shared.tls.as_ref(), tcp).await?;
    while let Some(request) = Request::read(&mut *stream).await? {
        let length = request.header("content-length").and_then(|length| length.parse().ok());
        let length: u64 = length.unwrap_or(0);
        let mut body = Vec::new();
        (&mut *stream).take(length.min(BODY_LIMIT_BYTES)).read_to_end(&mut body).await?;
        let body = String::from_utf8_lossy(&body).into_owned();
        let reply = (shared.answer)(&request, &body);
        let is_chunked = request.header("transfer-encoding").is_some();
        let is_unread = is_chunked || length > BODY_LIMIT_BYTES;
        shared.record(request, body);
        if is_unread {
            write(&mut *stream, reply.with("Connection", "close")).await?;
            // To close a connection with unread bytes would reset it, and a client that still
            // sends might lose the response (RFC 9112 §9.6).
            tokio::io::copy(&mut *stream, &mut tokio::io::sink()).await?;
            break;
        }
        write(&mut *stream, reply).await?;
    }
    Ok(())
}

async fn write(stream: &mut dyn Stream, reply: Reply) -> io::Result<()> {
    let framing = match &reply.body {
        Body::Whole(bytes) => ("Content-Length".to_owned(), bytes.len().to_string()),
        Body::Chunked(_) | Body::Endless(..) => {
            ("Transfer-Encoding".to_owned(), "chunked".to_owned())
        }
        Body::Silence => std::future::pending().await,
    };
    let headers = [reply.headers, vec![framing]].concat();
    wire::write_head(stream, reply.status, &headers).await?;
    match reply.body {
        Body::Whole(bytes) => stream.write_all(&bytes).await?,
        Body::Chunked(bytes) => {
            write_chunk(stream, &bytes).await?;
            stream.write_all(b"0\r\n\r\n").await?;
        }
        Body::Endless(bytes, pause) => loop {
            write_chunk(stream, &bytes).await?;
            tokio::time::sleep(pause).await;
        },
        Body::Silence => {}
    }
    stream.flush().await
}

async fn write_chunk(stream: &mut dyn Stream, bytes: &[u8]) -> io::Result<()> {
    let size = format!("{:x}\r\n", bytes.len());
    stream.write_all(size.as_bytes()).await?;
    stream.write_all(bytes).await?;
    stream.write_all(b"\r\n").await?;
    stream.flush().await
}
