//! An HTTP reverse proxy in front of a real server that damages the responses as a test tells it
//! to.
//!
//! Requests are passed on unchanged, including `Host`, so that signatures stay valid.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

pub use crate::serving::Recorded;
use crate::serving::{After, Exchange, Handler, HttpServer, Pace};
use crate::wire::{self, Incoming, Request};

/// Which requests get faults, the faults, and the rate of bodies.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Selects the requests that get faults. All others pass unchanged.
    pub matching: fn(&Request) -> bool,
    /// The i-th matching request gets `faults[i]`; later ones pass unchanged.
    pub faults: Vec<Fault>,
    /// The rate limit for each body.
    pub bytes_per_second: Option<u64>,
}

impl Default for Plan {
    /// Passes everything unchanged.
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl Plan {
    /// Faults of the first GET requests, in order.
    pub fn of(faults: Vec<Fault>) -> Self {
        Self { matching: |request| request.method == "GET", faults, bytes_per_second: None }
    }
}

/// The fault of one request. Offsets count the bytes of the response's body, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The response passes unchanged.
    None,
    /// The connection is closed after this number of bytes of the body.
    Cut(u64),
    /// A response with this status and these headers and an empty body; the server is not asked.
    Status(u16, Vec<(&'static str, String)>),
    /// Like `Status`, with a body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// One bit of this byte of the body is flipped.
    Corrupt(u64),
    /// The body is shortened to this number of bytes, and `Content-Length` is adjusted, so it
    /// looks complete.
    Short(u64),
}

/// A running gateway on a free loopback port. It stops when dropped. The status of a recorded
/// request is 0 if the server could not be reached.
pub type Gateway = HttpServer<Passage>;

/// The way through a [`Gateway`].
pub struct Passage {
    upstream: SocketAddr,
    plan: Plan,
    matched: AtomicUsize,
}

impl Gateway {
    /// Starts a gateway in front of `upstream`, which speaks plain HTTP.
    pub fn start(upstream: SocketAddr, plan: Plan) -> io::Result<Self> {
        Self::serve(Passage { upstream, plan, matched: AtomicUsize::new(0) }, None)
    }

    /// Like [`start`](Self::start), but over HTTPS (see [`crate::certs`]). `upstream` still speaks
    /// plain HTTP.
    pub fn start_tls(upstream: SocketAddr, plan: Plan, tls: Arc<ServerConfig>) -> io::Result<Self> {
        Self::serve(Passage { upstream, plan, matched: AtomicUsize::new(0) }, Some(tls))
    }
}

impl Handler for Passage {
    async fn handle(&self, exchange: &mut Exchange<'_>) -> io::Result<After> {
        let (status, headers, body) = match self.next_fault(&exchange.request) {
            Fault::Status(status, headers) => (status, headers, String::new()),
            Fault::Answer(status, headers, body) => (status, headers, body),
            // The peer sees a clean end of the connection if the server cannot be reached.
            fault => return Ok(self.pass_on(exchange, &fault).await.unwrap_or(After::Close)),
        };
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        exchange.respond(status, headers, body.as_bytes()).await?;
        // The request's body was not read; it would be parsed as the next request's head.
        let is_read = exchange.request.header("content-length").is_none();
        Ok(if is_read { After::KeepOpen } else { After::Close })
    }
}

impl Passage {
    fn next_fault(&self, request: &Request) -> Fault {
        let fault = (self.plan.matching)(request)
            .then(|| self.plan.faults.get(self.matched.fetch_add(1, Ordering::SeqCst)));
        fault.flatten().cloned().unwrap_or(Fault::None)
    }

    async fn pass_on(&self, exchange: &mut Exchange<'_>, fault: &Fault) -> io::Result<After> {
        let mut server = self.ask(exchange).await?;
        let head = wire::read_head(&mut server).await;
        let (line, mut headers) = wire::parse_head(&head)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status in {line:?}")))?;
        headers.retain(|(name, _)| !is_of_connection(name));
        let length = wire::header(&headers, "content-length").and_then(|value| value.parse().ok());
        let is_chunked = wire::header(&headers, "transfer-encoding").is_some();
        let mut body = match length {
            _ if exchange.request.method == "HEAD" || matches!(status, 204 | 304) => {
                Incoming::Length(0)
            }
            _ if is_chunked => Incoming::Chunk(0),
            Some(length) => Incoming::Length(length),
            None => Incoming::UntilClose,
        };
        let is_closed = matches!(body, Incoming::UntilClose) || matches!(fault, Fault::Cut(_));
        let limit = match fault {
            Fault::Cut(bytes) | Fault::Short(bytes) => *bytes,
            _ => u64::MAX,
        };
        if let (Fault::Short(_), Some(length)) = (fault, length) {
            headers.retain(|(name, _)| name != "content-length");
            headers.push(("content-length".to_owned(), length.min(limit).to_string()));
        }
        exchange.write_head(status, &headers).await?;
        let (pace, started) = (Pace::new(self.plan.bytes_per_second), Instant::now());
        let is_chunked = matches!(body, Incoming::Chunk(_));
        let mut sent = 0;
        loop {
            let mut piece = body.next(&mut server).await?;
            let is_last = piece.is_empty() || sent + piece.len() as u64 > limit;
            piece.truncate(wire::to_usize(limit - sent));
            if let Fault::Corrupt(at) = fault
                && let Some(at) = at.checked_sub(sent)
                && let Some(byte) = piece.get_mut(wire::to_usize(at))
            {
                *byte ^= 1;
            }
            exchange.write_piece(&piece, is_chunked).await?;
            sent += piece.len() as u64;
            pace.pause(piece.len(), started).await;
            if is_last {
                break;
            }
        }
        if is_chunked && !matches!(fault, Fault::Cut(_)) {
            wire::write_last_chunk(exchange.client).await?;
        }
        Ok(if is_closed { After::Close } else { After::KeepOpen })
    }

    /// Sends the request with its body on a connection of its own.
    async fn ask(&self, exchange: &mut Exchange<'_>) -> io::Result<BufReader<TcpStream>> {
        let mut server = TcpStream::connect(self.upstream).await?;
        server.set_nodelay(true)?;
        let Request { method, target, mut headers } = exchange.request.clone();
        headers.retain(|(name, _)| !is_of_connection(name));
        let fields = wire::fields(&headers);
        let head = format!("{method} {target} HTTP/1.1\r\n{fields}connection: close\r\n\r\n");
        server.write_all(head.as_bytes()).await?;
        if exchange.request.header("transfer-encoding").is_some() {
            return Err(io::Error::other("requests with a chunked body are not passed on"));
        }
        let mut body = (&mut *exchange.client).take(exchange.request.body_bytes());
        tokio::io::copy(&mut body, &mut server).await?;
        Ok(BufReader::new(server))
    }
}

fn is_of_connection(name: &str) -> bool {
    matches!(name, "connection" | "keep-alive")
}
