//! A relay in front of an NBD server that counts the bytes passed on and cuts connections.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::serving::ScriptedServer;

/// Bytes that are passed on at a time.
const PIECE_BYTES: usize = 16 << 10;

/// A running relay on a loopback port. It stops when dropped.
pub struct NbdProxy {
    shared: Arc<Shared>,
    server: ScriptedServer,
}

struct Shared {
    upstream: Mutex<PathBuf>,
    /// The number of bytes from the server after which each connection is cut, in connection
    /// order.
    cuts: Vec<u64>,
    connections: AtomicUsize,
    bytes: AtomicU64,
}

impl NbdProxy {
    /// Starts a relay to the Unix socket `upstream`. The i-th connection is cut after `cuts[i]`
    /// bytes from the server; later ones are not cut.
    pub fn start(upstream: &Path, cuts: Vec<u64>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream.to_owned()),
            cuts,
            connections: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
        });
        let relaying = Arc::clone(&shared);
        let server = ScriptedServer::start(move |client| relay(client, Arc::clone(&relaying)))?;
        Ok(Self { shared, server })
    }

    /// The URI of the export `name` through this relay.
    pub fn uri(&self, name: &str) -> String {
        format!("nbd://{}/{name}", self.server.address())
    }

    /// Sends new connections to another server.
    pub fn redirect(&self, upstream: &Path) {
        upstream
            .clone_into(&mut self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Number of bytes from the server so far.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

async fn relay(client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let index = shared.connections.fetch_add(1, Ordering::Relaxed);
    let upstream = shared.upstream.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let server = UnixStream::connect(upstream).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests =
        tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut left = shared.cuts.get(index).copied().unwrap_or(u64::MAX);
    let mut piece = vec![0; PIECE_BYTES];
    while left > 0 {
        let room = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        let count = from_server.read(&mut piece[..room]).await?;
        if count == 0 {
            break;
        }
        to_client.write_all(&piece[..count]).await?;
        shared.bytes.fetch_add(count as u64, Ordering::Relaxed);
        left -= count as u64;
    }
    requests.abort();
    Ok(())
}
