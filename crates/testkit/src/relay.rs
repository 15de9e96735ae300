//! A relay between a client and a server that can cut connections or stall them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::fail::OrFail;

/// A running relay on a free loopback port.
pub struct Relay {
    address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    sent: Arc<AtomicU64>,
    is_silent: Arc<AtomicBool>,
}

/// Interval at which a stalled connection checks whether the stall is over.
const LOOK: Duration = Duration::from_millis(10);

impl Relay {
    /// Starts a relay to `server`. It runs until the test program ends.
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").or_fail("a port");
        let relay = Self {
            address: listener.local_addr().or_fail("a port"),
            server: Arc::new(Mutex::new(server)),
            open: Arc::default(),
            sent: Arc::default(),
            is_silent: Arc::default(),
        };
        let (open, sent, is_silent) =
            (Arc::clone(&relay.open), Arc::clone(&relay.sent), Arc::clone(&relay.is_silent));
        let server = Arc::clone(&relay.server);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = *server.lock().unwrap_or_else(PoisonError::into_inner);
                // If the server cannot be reached, the client's connection is closed, which the
                // client notices.
                join(client, server, &open, &sent, &is_silent).ok();
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
    sent: &Arc<AtomicU64>,
    is_silent: &Arc<AtomicBool>,
) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let mut streams = open.lock().unwrap_or_else(PoisonError::into_inner);
    streams.extend([client.try_clone()?, server.try_clone()?]);
    let wait = |is_silent: Arc<AtomicBool>| {
        move || {
            while is_silent.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
        }
    };
    let (sent, forth, back) =
        (Arc::clone(sent), wait(Arc::clone(is_silent)), wait(Arc::clone(is_silent)));
    pass_on(client.try_clone()?, server.try_clone()?, move |bytes| {
        forth();
        sent.fetch_add(bytes, Ordering::Relaxed);
    });
    pass_on(server, client, move |_| back());
    Ok(())
}

/// Relays one direction until it ends, on a thread of its own. `before` is called with the number
/// of bytes before they are passed on.
fn pass_on(mut from: TcpStream, mut to: TcpStream, before: impl Fn(u64) + Send + 'static) {
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            before(length as u64);
            if to.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Write).ok();
    });
}
