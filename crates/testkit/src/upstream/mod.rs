//! A scripted upload server: it responds early, late, wrongly or never, and records the requests
//! it receives.
//!
//! It parses requests as strictly as it can. If a proxy passes a request on twice or in pieces,
//! this shows as an additional request.

mod script;
mod seen;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::certs::{Authority, KeyKind};
use crate::fail::OrFail;
use crate::serving::{self, ScriptedServer, lock};
use crate::wait;
use crate::wire::{self, Incoming, Stream};

pub use script::{Reads, Says, Script, Then, answer};
pub use seen::{End, Seen};

/// The state that all connections share.
#[derive(Default)]
struct Shared {
    scripts: Mutex<VecDeque<Script>>,
    seen: Mutex<Vec<Arc<Seen>>>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

/// A running upstream on a free loopback port. It stops when dropped.
pub struct Upstream {
    shared: Arc<Shared>,
    server: ScriptedServer,
}

impl Upstream {
    /// Starts a server whose certificate for `names` is signed by `authority` and that only
    /// accepts clients of that authority. Each request uses up one script, and the last script is
    /// used for all further requests.
    pub fn start(authority: &Authority, names: &[String], scripts: Vec<Script>) -> Self {
        assert!(!scripts.is_empty(), "an upstream does something");
        let identity = authority.server_named(names, KeyKind::Ecdsa).or_fail("a certificate");
        let config = authority.mutual_config(&identity).or_fail("TLS");
        let scripts = Mutex::new(scripts.into());
        let shared = Arc::new(Shared { scripts, ..Shared::default() });
        let (tls, serving) = (TlsAcceptor::from(config), Arc::clone(&shared));
        let server =
            ScriptedServer::start(move |tcp| accept(tcp, tls.clone(), Arc::clone(&serving)));
        Self { shared, server: server.or_fail("a server") }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// All requests so far, in the order in which their heads arrived.
    pub fn seen(&self) -> Vec<Arc<Seen>> {
        lock(&self.shared.seen).clone()
    }

    /// Number of connections whose handshake succeeded.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Number of currently open connections.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Uses this script for all requests from now on.
    pub fn follow(&self, script: Script) {
        *lock(&self.shared.scripts) = VecDeque::from([script]);
    }

    /// The only request so far. Fails the test if there is none or more than one.
    #[track_caller]
    pub fn only(&self) -> Arc<Seen> {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "requests: {seen:?}");
        Arc::clone(&seen[0])
    }

    /// Waits until `wanted` accepts the list of requests, and returns the list. Fails the test
    /// after ten seconds.
    #[track_caller]
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&[Arc<Seen>]) -> bool) -> Vec<Arc<Seen>> {
        let complaint = || format!("{what}: {:?}", self.seen());
        wait::find(complaint, || Some(self.seen()).filter(|seen| wanted(seen)))
    }
}

async fn accept(tcp: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) -> io::Result<()> {
    let mut client = serving::accept(Some(&acceptor), tcp).await?;
    let connection = shared.connections.fetch_add(1, Ordering::Relaxed);
    shared.open.fetch_add(1, Ordering::Relaxed);
    let result = serve(&mut *client, connection, &shared).await;
    shared.open.fetch_sub(1, Ordering::Relaxed);
    result
}

/// Follows scripts until the connection ends.
async fn serve(client: &mut dyn Stream, connection: usize, shared: &Shared) -> io::Result<()> {
    loop {
        // Malformed bytes count as a head too, because they were sent.
        let head = wire::read_head(client).await;
        if head.is_empty() {
            return Ok(());
        }
        let seen = Arc::new(Seen::new(head, connection));
        lock(&shared.seen).push(Arc::clone(&seen));
        let script = shared.next();
        let result = follow(client, &script, &seen).await;
        if result.is_err() {
            seen.finish(End::Aborted);
        }
        match script.then {
            Then::NextRequest => result?,
            Then::ReadOn => return result,
            Then::Close => return client.shutdown().await,
            Then::Reset => return client.tcp().set_zero_linger(),
            Then::Hang => {
                result?;
                return std::future::pending().await;
            }
        }
    }
}

async fn follow(client: &mut dyn Stream, script: &Script, seen: &Seen) -> io::Result<()> {
    let mut body = seen.framing()?;
    match script.reads {
        Reads::Head => {}
        Reads::Part(bytes) => read(client, &mut body, seen, bytes).await?,
        Reads::Everything => read(client, &mut body, seen, u64::MAX).await?,
    }
    match &script.says {
        Says::Nothing => {}
        Says::Head => client.write_all(&answer(200, &seen.head)).await?,
        Says::Bytes(bytes) => client.write_all(bytes).await?,
    }
    client.flush().await?;
    match script.then {
        Then::NextRequest => read(client, &mut body, seen, u64::MAX).await?,
        Then::ReadOn => {
            read(client, &mut body, seen, u64::MAX).await?;
            // Waits for the end of the connection and ignores further bytes.
            tokio::io::copy(client, &mut tokio::io::sink()).await?;
        }
        Then::Close | Then::Reset | Then::Hang => {}
    }
    Ok(())
}

/// Reads until the end of the body or until `enough` bytes have arrived.
async fn read(
    client: &mut dyn Stream,
    body: &mut Incoming,
    seen: &Seen,
    enough: u64,
) -> io::Result<()> {
    while seen.body_bytes() < enough {
        let piece = body.next(client).await?;
        if piece.is_empty() {
            seen.finish(End::Complete);
            break;
        }
        seen.take(&piece);
    }
    Ok(())
}

impl Shared {
    fn next(&self) -> Script {
        let mut scripts = lock(&self.scripts);
        let next = match scripts.len() {
            0 | 1 => scripts.front().cloned(),
            _ => scripts.pop_front(),
        };
        next.or_fail("an upstream does something")
    }
}
