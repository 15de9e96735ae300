//! An oVirt engine with one disk, and its image server: everything that a client of oVirt's API
//! needs to download that disk.
//!
//! The engine is as strict as a real one, and both servers fail on request. Images can also be
//! served by the real daemon instead ([`Daemon`]).

mod api;
mod daemon;
mod images;
mod script;
#[cfg(test)]
mod tests;
mod transfers;
mod xml;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::fail::OrFail;
use crate::serving::{self, ScriptedServer};
use crate::wire::{self, Request, Stream};

pub use daemon::Daemon;
pub use script::{Contents, DISK_ID, Extents, Fault, IMAGE_ID, PASSWORD, Script, USER};
pub use transfers::Transfer;

/// The engine's message if a disk is locked by another operation.
pub const DISK_IS_LOCKED: &str =
    "[Cannot transfer Virtual Disk. Disk is locked. Please try again later.]";

/// The engine's message if several disks may be locked.
pub const DISKS_ARE_LOCKED: &str = "[Cannot transfer Virtual Disk: The following disks are locked: disk. Please try again in a few minutes.]";

/// Longest request body that is read.
const BODY_LIMIT_BYTES: u64 = 64 * 1024;

/// A request to which the engine responded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `METHOD path`.
    pub line: String,
    /// The status of the response.
    pub status: u16,
}

/// An engine and an image server on free loopback ports. They stop when dropped.
pub struct Engine {
    state: Arc<State>,
    _servers: [ScriptedServer; 2],
}

/// The state that all connections share.
struct State {
    script: Script,
    tls: Option<TlsAcceptor>,
    engine: SocketAddr,
    images: SocketAddr,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    calls: Vec<Call>,
    /// Tokens that have not been logged out, and how often each was used.
    tokens: BTreeMap<String, usize>,
    transfers: Vec<Transfer>,
    /// Number of requests that start a transfer.
    posted: usize,
    log_ins: usize,
    /// Number of GETs of an image.
    reads: usize,
    body_bytes: u64,
    leaked: bool,
}

impl Engine {
    /// Starts an engine over plain HTTP.
    pub fn start(script: Script) -> Self {
        Self::spawn(script, None)
    }

    /// Starts an engine over HTTPS (see [`crate::certs`]).
    pub fn start_tls(script: Script, tls: Arc<rustls::ServerConfig>) -> Self {
        Self::spawn(script, Some(tls.into()))
    }

    fn spawn(script: Script, tls: Option<TlsAcceptor>) -> Self {
        let listeners = [(); 2].map(|()| serving::bind().or_fail("a port"));
        let [engine, images] =
            listeners.each_ref().map(|listener| listener.local_addr().or_fail("a port"));
        let state = Arc::new(State { script, tls, engine, images, log: Mutex::default() });
        let mut is_engine = [true, false].into_iter();
        let servers = listeners.map(|listener| {
            let (state, is_engine) = (Arc::clone(&state), is_engine.next() == Some(true));
            let serve = move |tcp| connection(Arc::clone(&state), tcp, is_engine);
            ScriptedServer::start_on(listener, serve).or_fail("a server")
        });
        Self { state, _servers: servers }
    }

    /// The URL of the API, without a trailing slash.
    pub fn api_url(&self) -> String {
        format!("{}://{}{}", self.state.scheme(), self.state.engine, api::API)
    }

    /// The addresses of the engine and of the image server.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.state.engine, self.state.images]
    }

    /// All requests to the engine, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.state.log().calls.clone()
    }

    /// How often the engine received the request `line` (`METHOD path`).
    pub fn count(&self, line: &str) -> usize {
        self.calls().iter().filter(|call| call.line == line).count()
    }

    /// All transfers so far.
    pub fn transfers(&self) -> Vec<Transfer> {
        self.state.log().transfers.clone()
    }

    /// The phases of all transfers.
    pub fn phases(&self) -> Vec<String> {
        self.transfers().into_iter().map(|transfer| transfer.phase).collect()
    }

    /// True if a client logged in and all clients have logged out.
    pub fn is_logged_out(&self) -> bool {
        let log = self.state.log();
        log.tokens.is_empty()
            && log.calls.iter().any(|call| call.line.ends_with("/sso-logout") && call.status == 200)
    }

    /// Bytes of images sent so far.
    pub fn body_bytes(&self) -> u64 {
        self.state.log().body_bytes
    }

    /// True if the image server ever received the engine's credentials.
    pub fn leaked(&self) -> bool {
        self.state.log().leaked
    }
}

impl State {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().ok().or_fail("a connection panicked")
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The address of the image server, at which tickets are valid.
    fn image_server(&self) -> String {
        match &self.script.daemon {
            Some(daemon) => daemon.url(),
            None => {
                let host = self.script.host.clone();
                let host = host.unwrap_or_else(|| self.images.ip().to_string());
                format!("{}://{host}:{}", self.scheme(), self.images.port())
            }
        }
    }

    /// Records that bytes were read, which keeps their ticket alive.
    fn sent(&self, ticket: &str, bytes: usize) {
        let mut log = self.log();
        log.body_bytes += bytes as u64;
        if let Some(transfer) = log.transfers.iter_mut().find(|transfer| transfer.id == ticket) {
            transfer.active = Instant::now();
        }
    }

    /// The fault of the next GET of an image.
    fn next_fault(&self, has_secret: bool) -> Fault {
        let mut log = self.log();
        log.leaked |= has_secret;
        log.reads += 1;
        self.script.faults.get(log.reads - 1).cloned().unwrap_or(Fault::None)
    }
}

impl Log {
    /// Counts a use of the token and returns whether it is valid. A token used too often is
    /// removed.
    fn admits(&mut self, token: Option<&str>, most: usize) -> bool {
        let Some(token) = token else {
            return false;
        };
        match self.tokens.get_mut(token) {
            Some(uses) if *uses < most => *uses += 1,
            Some(_) => {
                self.tokens.remove(token);
                return false;
            }
            None => return false,
        }
        true
    }

    fn transfer(&mut self, id: &str, forgetful: bool) -> Option<&mut Transfer> {
        let found = self.transfers.iter_mut().find(|transfer| transfer.id == id);
        found.filter(|transfer| !forgetful || !transfer.has_ended())
    }
}

/// Serves one connection until the peer or a fault ends it. Errors are ignored here: the peer
/// notices them.
async fn connection(state: Arc<State>, tcp: TcpStream, is_engine: bool) -> io::Result<()> {
    let mut stream = serving::accept(state.tls.as_ref(), tcp).await?;
    while let Some(request) = Request::read(&mut *stream).await? {
        let go_on = if is_engine {
            engine(&state, &mut *stream, &request).await?
        } else {
            images::serve(&state, &mut *stream, &request).await?
        };
        if !go_on {
            return stream.shutdown().await;
        }
    }
    Ok(())
}

async fn engine(state: &State, stream: &mut dyn Stream, request: &Request) -> io::Result<bool> {
    let length: u64 =
        request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = Vec::new();
    (&mut *stream).take(length.min(BODY_LIMIT_BYTES)).read_to_end(&mut body).await?;
    // This may call the real daemon and so block for a moment, in which other connections wait.
    let answer = api::answer(state, request, &String::from_utf8_lossy(&body));
    state.log().calls.push(Call {
        line: format!("{} {}", request.method, request.path()),
        status: answer.status,
    });
    let headers = [
        ("Content-Type".to_owned(), answer.content_type.to_owned()),
        ("Content-Length".to_owned(), answer.body.len().to_string()),
    ];
    wire::write_head(stream, answer.status, &headers).await?;
    stream.write_all(&answer.body).await?;
    stream.flush().await?;
    Ok(true)
}
