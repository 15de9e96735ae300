//! A scripted upload server: it responds early, late, wrongly or never, and records the requests
//! it receives.
//!
//! It parses requests as strictly as it can. If a proxy passes a request on twice or in pieces,
//! this shows as an additional request.

mod body;
mod script;
mod seen;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certs::{Authority, KeyKind};
use crate::fail::OrFail;
use crate::serving::ScriptedServer;
use crate::wait;

use body::Body;
pub use script::{Reads, Says, Script, Then, answer};
pub use seen::{End, Seen};

/// Longest head that is read.
const HEAD_LIMIT_BYTES: usize = 256 * 1024;

/// The state that all connections share.
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
        let shared = Arc::new(Shared {
            scripts: Mutex::new(scripts.into()),
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
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
    let tls = acceptor.accept(tcp).await?;
    let connection = shared.connections.fetch_add(1, Ordering::Relaxed);
    shared.open.fetch_add(1, Ordering::Relaxed);
    let result = serve(BufReader::new(tls), connection, &shared).await;
    shared.open.fetch_sub(1, Ordering::Relaxed);
    result
}

/// Follows scripts until the connection ends.
async fn serve(
    mut stream: BufReader<TlsStream<TcpStream>>,
    connection: usize,
    shared: &Shared,
) -> io::Result<()> {
    while let Some(head) = read_head(&mut stream).await? {
        let seen = Arc::new(Seen::new(head, connection));
        lock(&shared.seen).push(Arc::clone(&seen));
        let script = shared.next();
        let result = follow(&mut stream, &script, &seen).await;
        if result.is_err() {
            seen.finish(End::Aborted);
        }
        match script.then {
            Then::NextRequest => result?,
            Then::ReadOn => return result,
            Then::Close => return stream.shutdown().await,
            Then::Reset => return stream.get_ref().get_ref().0.set_zero_linger(),
            Then::Hang => {
                result?;
                return std::future::pending().await;
            }
        }
    }
    Ok(())
}

async fn follow(
    stream: &mut BufReader<TlsStream<TcpStream>>,
    script: &Script,
    seen: &Seen,
) -> io::Result<()> {
    let mut body = Body::of(seen)?;
    let wanted = match script.reads {
        Reads::Head => 0,
        Reads::Part(bytes) => bytes,
        Reads::Everything => u64::MAX,
    };
    if wanted > 0 {
        body.read(stream, seen, wanted).await?;
    }
    match &script.says {
        Says::Nothing => {}
        Says::Head => stream.write_all(&answer(200, &seen.head)).await?,
        Says::Bytes(bytes) => stream.write_all(bytes).await?,
    }
    stream.flush().await?;
    match script.then {
        Then::NextRequest | Then::ReadOn => body.read(stream, seen, u64::MAX).await?,
        Then::Close | Then::Reset | Then::Hang => {}
    }
    if script.then == Then::ReadOn {
        // Waits for the end of the connection and ignores further bytes.
        tokio::io::copy(stream, &mut tokio::io::sink()).await?;
    }
    Ok(())
}

/// Reads one head, or returns `None` at the end of the connection. Malformed bytes count as a head
/// too, because they were sent.
async fn read_head(stream: &mut BufReader<TlsStream<TcpStream>>) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut limited = (&mut *stream).take(HEAD_LIMIT_BYTES as u64);
        if limited.read_until(b'\n', &mut head).await.unwrap_or(0) == 0
            || head.len() > HEAD_LIMIT_BYTES
        {
            break;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    Ok(Some(head).filter(|head| !head.is_empty()))
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ok().or_fail("a connection panicked")
}
