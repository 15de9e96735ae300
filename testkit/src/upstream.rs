//! An upload server that does what it is told: it answers early, late, wrongly or never, and tells what it was sent.
//!
//! It reads requests as strictly as it can, so that what a proxy lets through twice or in pieces shows as one request more.

mod body;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certs::{Authority, KeyKind};
use crate::fail::OrFail;

use body::Body;

/// How long [`Upstream::wait_for`] waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// How much of a body is kept.
const KEPT_BYTES: usize = 64 * 1024;

/// Longest head that is read.
const HEAD_LIMIT_BYTES: usize = 256 * 1024;

/// What is done with one request: some of it is read, something is said, and then?
#[derive(Debug, Clone)]
pub struct Script {
    /// How much is read before something is said.
    pub reads: Reads,
    /// What is said.
    pub says: Says,
    /// What follows.
    pub then: Then,
}

/// How much of a request is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// The head.
    Head,
    /// The head and so many bytes of the body.
    Part(u64),
    /// All.
    Everything,
}

/// What is said.
#[derive(Debug, Clone)]
pub enum Says {
    /// Nothing.
    Nothing,
    /// 200 with the head of the request as the body, byte for byte.
    Head,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// What follows the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The rest of this request is read, then the next one.
    NextRequest,
    /// The rest of this request is read.
    ReadOn,
    /// The connection is closed, with a word (`close_notify`).
    Close,
    /// The connection is reset.
    Reset,
    /// Nothing: the connection stays open and nobody reads from it.
    Hang,
}

impl Script {
    /// Answers the whole request with its own head.
    pub fn echo() -> Self {
        Self {
            reads: Reads::Everything,
            says: Says::Head,
            then: Then::NextRequest,
        }
    }

    /// Answers the whole request with these bytes.
    pub fn answer(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            says: Says::Bytes(bytes.into()),
            ..Self::echo()
        }
    }

    /// Answers the whole request with this status and body.
    pub fn status(status: u16, body: &str) -> Self {
        Self::answer(answer(status, body))
    }

    /// Answers with these bytes before a byte of the body is read, and reads on.
    pub fn early(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            reads: Reads::Head,
            ..Self::answer(bytes)
        }
    }

    /// Reads all of it and never answers.
    pub fn silent() -> Self {
        Self {
            reads: Reads::Everything,
            says: Says::Nothing,
            then: Then::ReadOn,
        }
    }

    /// Reads so much, says nothing, and then.
    pub fn stop(reads: Reads, then: Then) -> Self {
        Self {
            reads,
            says: Says::Nothing,
            then,
        }
    }
}

/// A plain answer as bytes.
pub fn answer(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Scripted\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// How the sending of a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was complete.
    Complete,
    /// The connection ended before, or what came was no HTTP.
    Aborted,
}

/// A request that arrived.
#[derive(Debug)]
pub struct Seen {
    /// The head with its empty line, as it came.
    pub head: String,
    /// On which connection it came, counted from zero.
    pub connection: usize,
    body_bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    body: Vec<u8>,
    end: Option<End>,
}

impl Seen {
    /// Bytes of the body so far, without framing.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// The first 64 KiB of the body.
    pub fn body(&self) -> Vec<u8> {
        lock(&self.state).body.clone()
    }

    /// How the request ended, if it did.
    pub fn end(&self) -> Option<End> {
        lock(&self.state).end
    }

    /// The request line.
    pub fn request_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// All values of the header with this name in lower case, in order.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    fn take(&self, piece: &[u8]) {
        self.body_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let room = KEPT_BYTES.saturating_sub(state.body.len()).min(piece.len());
        state.body.extend_from_slice(&piece[..room]);
    }

    fn finish(&self, end: End) {
        lock(&self.state).end.get_or_insert(end);
    }
}

/// What all connections share.
struct Shared {
    scripts: Mutex<VecDeque<Script>>,
    seen: Mutex<Vec<Arc<Seen>>>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

/// A running upstream on a loopback port of its own; stops when dropped.
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl Upstream {
    /// Starts a server that `authority` vouches for and that takes its clients only. Every request gets a script; the
    /// last one serves all that follow. `names` are names of the server.
    pub fn start(authority: &Authority, names: &[String], scripts: Vec<Script>) -> Self {
        assert!(!scripts.is_empty(), "an upstream does something");
        let identity = authority
            .server_named(names, KeyKind::Ecdsa)
            .or_fail("a certificate");
        let config = authority.mutual_config(&identity).or_fail("TLS");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .or_fail("a runtime");
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .or_fail("a port");
        let shared = Arc::new(Shared {
            scripts: Mutex::new(scripts.into()),
            seen: Mutex::default(),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        let address = listener.local_addr().or_fail("a port");
        runtime.spawn(accept(listener, config, Arc::clone(&shared)));
        Self {
            address,
            shared,
            runtime: Some(runtime),
        }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far, in the order in which their heads came.
    pub fn seen(&self) -> Vec<Arc<Seen>> {
        lock(&self.shared.seen).clone()
    }

    /// Connections whose handshake succeeded.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// From now on, this is done with every request.
    pub fn follow(&self, script: Script) {
        *lock(&self.shared.scripts) = VecDeque::from([script]);
    }

    /// The only request so far. Fails the test if there were none or more.
    #[track_caller]
    pub fn only(&self) -> Arc<Seen> {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "requests: {seen:?}");
        Arc::clone(&seen[0])
    }

    /// Waits until the requests are as wanted. Fails the test after ten seconds.
    #[track_caller]
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&[Arc<Seen>]) -> bool) -> Vec<Arc<Seen>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.seen();
            if wanted(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{what} is waited for: {seen:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, config: Arc<ServerConfig>, shared: Arc<Shared>) {
    let acceptor = TlsAcceptor::from(config);
    while let Ok((tcp, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let tls = acceptor.accept(tcp).await?;
            let connection = shared.connections.fetch_add(1, Ordering::Relaxed);
            shared.open.fetch_add(1, Ordering::Relaxed);
            let result = serve(BufReader::new(tls), connection, &shared).await;
            shared.open.fetch_sub(1, Ordering::Relaxed);
            result
        });
    }
}

/// Follows scripts until the connection ends.
async fn serve(
    mut stream: BufReader<TlsStream<TcpStream>>,
    connection: usize,
    shared: &Shared,
) -> io::Result<()> {
    while let Some(head) = read_head(&mut stream).await? {
        let seen = Arc::new(Seen {
            head,
            connection,
            body_bytes: AtomicU64::new(0),
            state: Mutex::default(),
        });
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
            Then::Hang => return std::future::pending().await,
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
        // The end of the connection is waited for, whatever else comes.
        tokio::io::copy(stream, &mut tokio::io::sink()).await?;
    }
    Ok(())
}

/// One head; `None` at the end of the connection. What is no head at all counts as one: somebody sent it.
async fn read_head(stream: &mut BufReader<TlsStream<TcpStream>>) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut limited = (&mut *stream).take(HEAD_LIMIT_BYTES as u64);
        if limited.read_until(b'\n', &mut head).await.unwrap_or(0) == 0 || head.len() > HEAD_LIMIT_BYTES {
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
