//! An HTTP(S) origin that serves one object, with faults that a test chooses.

mod answer;
mod script;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use self::answer::Answer;
pub use self::script::{Fault, Framing, Object, Ranges, Script};
use crate::serving::{self, ScriptedServer};
use crate::wire;
use crate::wire::{Request, Stream};

/// Bytes of a body that are written at a time. They are few, so that the rate of a slow server is
/// even.
const WRITE_BYTES: usize = 16 * 1024;

/// A running server on a free loopback port. It stops when dropped.
pub struct Origin {
    scheme: &'static str,
    state: Arc<State>,
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

struct State {
    script: Script,
    tls: Option<tokio_rustls::TlsAcceptor>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    requests: Vec<Recorded>,
    seen: HashMap<String, usize>,
    answered_gets: usize,
    /// When the rate that all connections share allows the next bytes.
    free_at: Option<Instant>,
}

impl Origin {
    /// Serves `script` over plain HTTP.
    pub fn start(script: Script) -> io::Result<Self> {
        Self::spawn(script, None)
    }

    /// Serves `script` over HTTPS (see [`crate::certs`]).
    pub fn start_tls(script: Script, tls: Arc<rustls::ServerConfig>) -> io::Result<Self> {
        Self::spawn(script, Some(tls.into()))
    }

    fn spawn(script: Script, tls: Option<tokio_rustls::TlsAcceptor>) -> io::Result<Self> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let state = Arc::new(State { script, tls, log: Mutex::default() });
        let serving = Arc::clone(&state);
        let server = ScriptedServer::start(move |stream| Arc::clone(&serving).connection(stream))?;
        Ok(Self { scheme, state, server })
    }

    /// The URL of `path` (which begins with `/`) on this server.
    pub fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address())
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        self.state.log().requests.clone()
    }

    /// Bytes of all bodies that were written to their connections so far.
    pub fn body_bytes(&self) -> u64 {
        self.state.log().requests.iter().map(|request| request.body_bytes).sum()
    }
}

/// True for a request for a range with an end.
fn is_bounded(request: &Request) -> bool {
    request.header("range").is_some_and(|range| !range.ends_with('-'))
}

impl State {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection until the peer or a fault ends it. Errors are ignored here: the peer
    /// notices them.
    async fn connection(self: Arc<Self>, tcp: TcpStream) {
        let Ok(mut stream) = serving::accept(self.tls.as_ref(), tcp).await else {
            return;
        };
        while let Ok(Some(request)) = Request::read(&mut *stream).await {
            match self.respond(&mut *stream, request).await {
                Ok(After::KeepOpen) => {}
                Ok(After::Close) => {
                    // TLS sends a close_notify and TCP a FIN, so the peer sees a clean end.
                    stream.shutdown().await.ok();
                    return;
                }
                Ok(After::Reset) => {
                    // With zero linger, the kernel sends RST when the socket is closed.
                    stream.tcp().set_zero_linger().ok();
                    return;
                }
                Err(_) => return,
            }
        }
    }

    async fn respond(&self, stream: &mut dyn Stream, request: Request) -> io::Result<After> {
        tokio::time::sleep(self.script.latency).await;
        let (index, answer, fault) = self.decide(&request);
        match fault {
            Fault::Refuse => return Ok(After::Close),
            Fault::Silence => std::future::pending().await,
            _ => {}
        }
        wire::write_head(stream, answer.status, &answer.headers).await?;
        if request.method == "HEAD" {
            return Ok(After::KeepOpen);
        }
        self.write_body(stream, index, &answer, &fault).await
    }

    /// Chooses the response and the fault, and records the request.
    fn decide(&self, request: &Request) -> (usize, Answer, Fault) {
        let mut log = self.log();
        let seen = log.seen.entry(request.path().to_owned()).or_default();
        let before = *seen;
        *seen += 1;
        let (answer, fault) = match answer::refusal(&self.script, request, before) {
            Some(answer) => (answer, Fault::None),
            None if self.script.spares_bounded && is_bounded(request) => (
                answer::answer(&self.script, request, log.answered_gets, &Fault::None),
                Fault::None,
            ),
            None => {
                let nth = log.answered_gets;
                log.answered_gets += usize::from(request.method == "GET");
                let fault = self.script.faults.get(nth).cloned().unwrap_or(Fault::None);
                (answer::answer(&self.script, request, nth, &fault), fault)
            }
        };
        log.requests.push(Recorded {
            request: request.clone(),
            status: if matches!(fault, Fault::Refuse | Fault::Silence) { 0 } else { answer.status },
            body_bytes: 0,
        });
        (log.requests.len() - 1, answer, fault)
    }

    async fn write_body(
        &self,
        stream: &mut dyn Stream,
        index: usize,
        answer: &Answer,
        fault: &Fault,
    ) -> io::Result<After> {
        let (limit, after) = match fault {
            Fault::CutAt(offset) => (*offset, After::Close),
            Fault::ResetAt(offset) => (*offset, After::Reset),
            Fault::StallAt(offset) => (*offset, After::Close),
            _ => (u64::MAX, After::KeepOpen),
        };
        let mut offset = answer.offset;
        let mut free_at = Instant::now();
        for piece in answer.body.chunks(WRITE_BYTES) {
            let allowed = usize::try_from(limit.saturating_sub(offset)).unwrap_or(usize::MAX);
            let piece = &piece[..piece.len().min(allowed)];
            if piece.is_empty() {
                break;
            }
            // Counted before they are written: a client that has received all of them may check
            // the count at once.
            if let Some(recorded) = self.log().requests.get_mut(index) {
                recorded.body_bytes += piece.len() as u64;
            }
            if answer.chunked {
                stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
            }
            stream.write_all(piece).await?;
            if answer.chunked {
                stream.write_all(b"\r\n").await?;
            }
            stream.flush().await?;
            offset += piece.len() as u64;
            self.pause_for(piece.len(), &mut free_at).await;
        }
        if offset < answer.offset + answer.body.len() as u64 {
            if matches!(fault, Fault::StallAt(_)) {
                std::future::pending::<()>().await;
            }
            return Ok(after);
        }
        if answer.chunked && self.script.cut_end_mark {
            return Ok(After::Close);
        }
        if answer.chunked {
            stream.write_all(b"0\r\n\r\n").await?;
        }
        stream.flush().await?;
        Ok(if answer.close { After::Close } else { After::KeepOpen })
    }

    /// Sleeps until the rate allows more than `bytes`. `free_at` is the time at which it allowed
    /// them; a sleep that was too long makes the next one shorter.
    async fn pause_for(&self, bytes: usize, free_at: &mut Instant) {
        if let Some(rate) = self.script.rate {
            let pause = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            if self.script.shared_rate {
                let mut log = self.log();
                *free_at = log.free_at.map_or(*free_at, |at| at.max(*free_at)) + pause;
                log.free_at = Some(*free_at);
            } else {
                *free_at += pause;
            }
            tokio::time::sleep_until(*free_at).await;
        }
    }
}

/// What happens to the connection after a response.
enum After {
    KeepOpen,
    Close,
    Reset,
}
