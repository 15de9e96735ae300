//! An HTTP reverse proxy in front of a real server that damages the responses as a test tells it
//! to.
//!
//! Requests are passed on unchanged, including `Host`, so that signatures stay valid.

mod plan;
#[cfg(test)]
mod tests;
mod upstream;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

pub use self::plan::{Fault, Plan};
use self::upstream::{Answer, Framing};
pub use crate::origin::Recorded;
use crate::serving::{self, ScriptedServer};
use crate::wire;
use crate::wire::{Request, Stream};

/// Bytes of a body that are passed on at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// A running gateway on a free loopback port. It stops when dropped.
pub struct Gateway {
    scheme: &'static str,
    state: Arc<State>,
    server: ScriptedServer,
}

struct State {
    upstream: SocketAddr,
    plan: Plan,
    tls: Option<tokio_rustls::TlsAcceptor>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    requests: Vec<Recorded>,
    matched: usize,
}

impl Gateway {
    /// Starts a gateway in front of `upstream`, which speaks plain HTTP.
    pub fn start(upstream: SocketAddr, plan: Plan) -> io::Result<Self> {
        Self::spawn(upstream, plan, None)
    }

    /// Like [`start`](Self::start), but over HTTPS (see [`crate::certs`]). `upstream` still speaks
    /// plain HTTP.
    pub fn start_tls(
        upstream: SocketAddr,
        plan: Plan,
        tls: Arc<rustls::ServerConfig>,
    ) -> io::Result<Self> {
        Self::spawn(upstream, plan, Some(tls.into()))
    }

    fn spawn(
        upstream: SocketAddr,
        plan: Plan,
        tls: Option<tokio_rustls::TlsAcceptor>,
    ) -> io::Result<Self> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let state = Arc::new(State { upstream, plan, tls, log: Mutex::default() });
        let serving = Arc::clone(&state);
        let server = ScriptedServer::start(move |stream| Arc::clone(&serving).connection(stream))?;
        Ok(Self { scheme, state, server })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The URL of `path` (which begins with `/`) through this gateway.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address())
    }

    /// Every request so far, in order of arrival. The status is 0 if the server could not be
    /// reached.
    pub fn requests(&self) -> Vec<Recorded> {
        self.state.log().requests.clone()
    }

    /// Total bytes of all response bodies passed on so far.
    pub fn body_bytes(&self) -> u64 {
        let log = self.state.log();
        log.requests.iter().map(|request| request.body_bytes).sum()
    }
}

impl State {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection until the peer or a fault ends it. Errors are ignored here: the peer
    /// notices them.
    async fn connection(self: Arc<Self>, tcp: TcpStream) {
        tcp.set_nodelay(true).ok();
        let Ok(mut stream) = serving::accept(self.tls.as_ref(), tcp).await else {
            return;
        };
        while let Ok(Some(request)) = Request::read(&mut *stream).await {
            match self.respond(&mut *stream, request).await {
                Ok(After::KeepOpen) => {}
                Ok(After::Close) | Err(_) => break,
            }
        }
        // TLS sends a close_notify and TCP a FIN, so the peer sees a clean end.
        stream.shutdown().await.ok();
    }

    async fn respond(&self, client: &mut dyn Stream, request: Request) -> io::Result<After> {
        let (index, fault) = self.record(&request);
        let (status, headers, body) = match &fault {
            Fault::Status(status, headers) => (*status, headers, ""),
            Fault::Answer(status, headers, body) => (*status, headers, body.as_str()),
            _ => {
                let answer = upstream::ask(self.upstream, &request, client).await?;
                return self.pass_on(client, index, answer, &fault).await;
            }
        };
        self.update(index, |recorded| recorded.status = status);
        let mut headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        headers.push(("content-length".to_owned(), body.len().to_string()));
        wire::write_head(client, status, &headers).await?;
        client.write_all(body.as_bytes()).await?;
        client.flush().await?;
        // The request's body was not read; it would be parsed as the next request's head.
        Ok(match request.header("content-length") {
            None => After::KeepOpen,
            Some(_) => After::Close,
        })
    }

    fn record(&self, request: &Request) -> (usize, Fault) {
        let mut log = self.log();
        let fault = if (self.plan.matching)(request) {
            log.matched += 1;
            self.plan.faults.get(log.matched - 1).cloned()
        } else {
            None
        };
        log.requests.push(Recorded { request: request.clone(), status: 0, body_bytes: 0 });
        (log.requests.len() - 1, fault.unwrap_or(Fault::None))
    }

    fn update(&self, index: usize, change: impl FnOnce(&mut Recorded)) {
        if let Some(recorded) = self.log().requests.get_mut(index) {
            change(recorded);
        }
    }

    async fn pass_on(
        &self,
        client: &mut dyn Stream,
        index: usize,
        mut answer: Answer,
        fault: &Fault,
    ) -> io::Result<After> {
        self.update(index, |recorded| recorded.status = answer.status);
        let limit = match fault {
            Fault::Cut(bytes) | Fault::Short(bytes) => *bytes,
            _ => u64::MAX,
        };
        let mut headers = std::mem::take(&mut answer.headers);
        if let (Fault::Short(_), Framing::Length(length)) = (fault, answer.framing) {
            headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
            headers.push(("content-length".to_owned(), length.min(limit).to_string()));
        }
        wire::write_head(client, answer.status, &headers).await?;
        let is_chunked = answer.framing == Framing::Chunked;
        let pace = Pace::new(self.plan.bytes_per_second);
        let mut buffer = vec![0; PIECE_BYTES];
        let mut sent = 0;
        loop {
            let read = answer.read_some(&mut buffer).await?;
            let allowed = usize::try_from(limit - sent).map_or(read, |left| left.min(read));
            let piece = &mut buffer[..allowed];
            if let Fault::Corrupt(at) = fault
                && let Some(byte) = at.checked_sub(sent).and_then(|at| usize::try_from(at).ok())
                && let Some(byte) = piece.get_mut(byte)
            {
                *byte ^= 1;
            }
            write_piece(client, piece, is_chunked).await?;
            sent += piece.len() as u64;
            self.update(index, |recorded| recorded.body_bytes = sent);
            pace.wait(sent).await;
            if allowed < read || read == 0 {
                break;
            }
        }
        if is_chunked && !matches!(fault, Fault::Cut(_)) {
            client.write_all(b"0\r\n\r\n").await?;
        }
        client.flush().await?;
        Ok(match (fault, answer.framing) {
            (Fault::Cut(_), _) | (_, Framing::UntilClose) => After::Close,
            _ => After::KeepOpen,
        })
    }
}

/// Writes a piece of a body. An empty piece is skipped, because an empty chunk would end the body.
async fn write_piece(client: &mut dyn Stream, piece: &[u8], is_chunked: bool) -> io::Result<()> {
    if piece.is_empty() {
        return Ok(());
    }
    if is_chunked {
        let size = format!("{:x}\r\n", piece.len());
        client.write_all(size.as_bytes()).await?;
    }
    client.write_all(piece).await?;
    if is_chunked {
        client.write_all(b"\r\n").await?;
    }
    Ok(())
}

/// Limits the rate at which a body is sent.
struct Pace {
    started: Instant,
    bytes_per_second: Option<u64>,
}

impl Pace {
    fn new(bytes_per_second: Option<u64>) -> Self {
        Self { started: Instant::now(), bytes_per_second }
    }

    async fn wait(&self, sent: u64) {
        if let Some(rate) = self.bytes_per_second {
            let due = Duration::from_secs_f64(sent as f64 / rate.max(1) as f64);
            tokio::time::sleep_until(self.started + due).await;
        }
    }
}

/// What happens to the connection after a response.
enum After {
    KeepOpen,
    Close,
}
