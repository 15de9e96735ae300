//! An oVirt engine with one disk, and its image server: everything that a client of oVirt's API
//! needs to download that disk.
//!
//! The engine is as strict as a real one, and both servers fail on request. Images can also be
//! served by the real daemon instead ([`Daemon`]).

mod api;
mod daemon;
mod images;
mod script;
mod transfers;
mod xml;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rustls::ServerConfig;

use self::images::Images;
use crate::adversary::{Adversary, Reply};
use crate::fail::OrFail;
use crate::serving::HttpServer;
use crate::wire::Request;

pub use daemon::Daemon;
pub use script::{Contents, DISK_ID, Extents, Fault, IMAGE_ID, PASSWORD, Script, USER};
pub use transfers::Transfer;

/// The engine's message if a disk is locked by another operation.
pub const DISK_IS_LOCKED: &str =
    "[Cannot transfer Virtual Disk. Disk is locked. Please try again later.]";

/// The engine's message if several disks may be locked.
pub const DISKS_ARE_LOCKED: &str = "[Cannot transfer Virtual Disk: The following disks are locked: disk. Please try again in a few minutes.]";

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
    engine: Adversary,
    images: HttpServer<Images>,
}

/// The state that both servers share.
struct State {
    script: Script,
    /// The address of the image server, at which tickets are valid.
    image_server: OnceLock<String>,
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
}

impl Engine {
    /// Starts an engine over plain HTTP.
    pub fn start(script: Script) -> Self {
        Self::spawn(script, None)
    }

    /// Starts an engine over HTTPS (see [`crate::certs`]).
    pub fn start_tls(script: Script, tls: Arc<ServerConfig>) -> Self {
        Self::spawn(script, Some(tls))
    }

    fn spawn(script: Script, tls: Option<Arc<ServerConfig>>) -> Self {
        let state =
            Arc::new(State { script, image_server: OnceLock::new(), log: Mutex::default() });
        let images = HttpServer::serve(Images(Arc::clone(&state)), tls.clone());
        let images = images.or_fail("an image server");
        let url = match (&state.script.daemon, &state.script.host) {
            (Some(daemon), _) => daemon.url(),
            (None, Some(host)) => images.url("").replace("127.0.0.1", host),
            (None, None) => images.url(""),
        };
        state.image_server.set(url).ok().or_fail("one address");
        let answering = Arc::clone(&state);
        // This may call the real daemon and so block for a moment, in which other connections
        // wait.
        let answer = move |request: &Request, body: &str| answering.answer(request, body);
        Self { state, engine: Adversary::start_with(answer, tls), images }
    }

    /// The URL of the API, without a trailing slash.
    pub fn api_url(&self) -> String {
        self.engine.url(api::API)
    }

    /// The addresses of the engine and of the image server.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.engine.address(), self.images.address()]
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
        self.images.body_bytes()
    }

    /// True if the image server ever received the engine's credentials.
    pub fn leaked(&self) -> bool {
        let requests = self.images.requests();
        requests.iter().any(|recorded| recorded.request.header("authorization").is_some())
    }
}

impl State {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().ok().or_fail("a connection panicked")
    }

    /// The engine's response to a request.
    fn answer(&self, request: &Request, body: &str) -> Reply {
        let reply = api::answer(self, request, body);
        let line = format!("{} {}", request.method, request.path());
        self.log().calls.push(Call { line, status: reply.status });
        reply
    }

    /// The fault of the next GET of an image.
    fn next_fault(&self) -> Fault {
        let mut log = self.log();
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
