//! An HTTP server whose every response is chosen by the test. It stands in for hostile engines and
//! hypervisors.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rustls::ServerConfig;

use crate::fail::OrFail;
use crate::serving::{After, Exchange, Handler, HttpServer, lock};
use crate::wire::{self, Request};

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
    /// These bytes in one chunk, without the last chunk. The connection stays open if the flag is
    /// true, and closes otherwise.
    Partial(Bytes, bool),
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

struct Answers {
    answer: Box<Answer>,
    seen: Mutex<Vec<(Request, String)>>,
}

/// A running server on a free loopback port. It stops when dropped.
pub struct Adversary(HttpServer<Answers>);

impl Adversary {
    /// Starts a server that responds to each request with what `answer` returns for the request
    /// and its body.
    pub fn start(answer: impl Fn(&Request, &str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(answer, None)
    }

    /// Like [`start`](Self::start), but over HTTPS (see [`crate::certs`]).
    pub fn start_tls(
        answer: impl Fn(&Request, &str) -> Reply + Send + Sync + 'static,
        tls: Arc<ServerConfig>,
    ) -> Self {
        Self::start_with(answer, Some(tls))
    }

    /// Starts a server, over HTTPS if there is a configuration.
    pub(crate) fn start_with(
        answer: impl Fn(&Request, &str) -> Reply + Send + Sync + 'static,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let answers = Answers { answer: Box::new(answer), seen: Mutex::default() };
        Self(HttpServer::serve(answers, tls).or_fail("a server"))
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The URL of `path` (which begins with `/`) on this server.
    pub fn url(&self, path: &str) -> String {
        self.0.url(path)
    }

    /// Every request received so far, with its body, in order of arrival.
    pub fn requests(&self) -> Vec<(Request, String)> {
        lock(&self.0.handler.seen).clone()
    }
}

impl Handler for Answers {
    async fn handle(&self, exchange: &mut Exchange<'_>) -> io::Result<After> {
        let is_chunked = exchange.request.header("transfer-encoding").is_some();
        let is_unread = is_chunked || exchange.request.body_bytes() > BODY_LIMIT_BYTES;
        let body = exchange.read_body(BODY_LIMIT_BYTES).await?;
        let reply = (self.answer)(&exchange.request, &body);
        lock(&self.seen).push((exchange.request.clone(), body));
        if !is_unread {
            return write(exchange, reply).await;
        }
        write(exchange, reply.with("Connection", "close")).await?;
        // To close a connection with unread bytes would reset it, and a client that still sends
        // might lose the response (RFC 9112 §9.6).
        tokio::io::copy(exchange.client, &mut tokio::io::sink()).await?;
        Ok(After::Close)
    }
}

async fn write(exchange: &mut Exchange<'_>, reply: Reply) -> io::Result<After> {
    let Reply { status, mut headers, body } = reply;
    if matches!(body, Body::Chunked(_) | Body::Partial(..) | Body::Endless(..)) {
        headers.push(("Transfer-Encoding".to_owned(), "chunked".to_owned()));
        exchange.write_head(status, &headers).await?;
    }
    match body {
        Body::Silence => std::future::pending().await,
        Body::Whole(bytes) => exchange.respond(status, headers, &bytes).await,
        Body::Chunked(bytes) => {
            exchange.write_piece(&bytes, true).await?;
            wire::write_last_chunk(exchange.client).await?;
            Ok(After::KeepOpen)
        }
        Body::Partial(bytes, stays_open) => {
            exchange.write_piece(&bytes, true).await?;
            if stays_open {
                std::future::pending::<()>().await;
            }
            Ok(After::Close)
        }
        Body::Endless(piece, pause) => loop {
            exchange.write_piece(&piece, true).await?;
            tokio::time::sleep(pause).await;
        },
    }
}
