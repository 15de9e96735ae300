//! A relay between a client and a server that can cut connections, stall them, or be slow.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::fail::OrFail;

/// A running relay on a free loopback port.
pub struct Relay {
    address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    is_silent: Arc<AtomicBool>,
}

/// How bytes travel in each direction of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct RelayPace {
    /// Time between their arrival at the relay and their departure.
    pub latency: Duration,
    /// Time that the line needs for a megabyte.
    pub per_megabyte: Duration,
}

/// Most pieces of a direction that are under way.
const PIECES: usize = 16;

/// Interval at which a stalled connection checks whether the stall is over.
const LOOK: Duration = Duration::from_millis(10);

impl Relay {
    /// Starts a relay to `server`. It runs until the test program ends.
    pub fn start(server: SocketAddr) -> Self {
        Self::start_slow(server, RelayPace::default())
    }

    /// Like [`start`](Self::start), over a slow line.
    pub fn start_slow(server: SocketAddr, pace: RelayPace) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").or_fail("a port");
        let relay = Self {
            address: listener.local_addr().or_fail("a port"),
            server: Arc::new(Mutex::new(server)),
            open: Arc::default(),
            sent: Arc::default(),
            received: Arc::default(),
            is_silent: Arc::default(),
        };
        let (open, is_silent) = (Arc::clone(&relay.open), Arc::clone(&relay.is_silent));
        let counters = [Arc::clone(&relay.sent), Arc::clone(&relay.received)];
        let server = Arc::clone(&relay.server);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = *server.lock().unwrap_or_else(PoisonError::into_inner);
                // If the server cannot be reached, the client's connection is closed, which the
                // client notices.
                join(client, server, &open, &counters, &is_silent, pace).ok();
            }
        });
        relay
    }

    /// Sends new connections to another server.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }

    /// The address of this relay.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the server through this relay.
    pub fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    /// The counter behind [`sent`](Self::sent), which stays usable after the relay is dropped.
    pub fn total(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.sent)
    }

    /// Bytes from clients so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes to clients so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Stalls all connections for this time without closing any.
    pub fn be_silent(&self, time: Duration) {
        self.is_silent.store(true, Ordering::Relaxed);
        std::thread::sleep(time);
        self.is_silent.store(false, Ordering::Relaxed);
    }

    /// Cuts all connections without a TLS close_notify. Later connections are relayed again.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // The connection may have ended by itself.
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

fn join(
    client: TcpStream,
    server: SocketAddr,
    open: &Mutex<Vec<TcpStream>>,
    [sent, received]: &[Arc<AtomicU64>; 2],
    is_silent: &Arc<AtomicBool>,
    pace: RelayPace,
) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let mut streams = open.lock().unwrap_or_else(PoisonError::into_inner);
    streams.extend([client.try_clone()?, server.try_clone()?]);
    let count = |counter: &Arc<AtomicU64>| {
        let (counter, is_silent) = (Arc::clone(counter), Arc::clone(is_silent));
        move |bytes| {
            while is_silent.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
            counter.fetch_add(bytes, Ordering::Relaxed);
        }
    };
    pass_on(client.try_clone()?, server.try_clone()?, pace, count(sent));
    pass_on(server, client, pace, count(received));
    Ok(())
}

/// Relays one direction until it ends, on threads of its own. `before` is called with the number
/// of bytes before they are passed on.
fn pass_on(
    mut from: TcpStream,
    mut to: TcpStream,
    pace: RelayPace,
    before: impl Fn(u64) + Send + 'static,
) {
    let (sender, pieces) = mpsc::sync_channel::<(Instant, Vec<u8>)>(PIECES);
    std::thread::spawn(move || {
        for (due, piece) in pieces {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Write).ok();
    });
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        let mut free_at = Instant::now();
        while let Ok(length @ 1..) = from.read(&mut piece) {
            before(length as u64);
            let time = pace.per_megabyte.mul_f64(length as f64 / 1e6);
            free_at = free_at.max(Instant::now()) + time;
            if sender.send((free_at + pace.latency, piece[..length].to_vec())).is_err() {
                break;
            }
        }
    });
}
