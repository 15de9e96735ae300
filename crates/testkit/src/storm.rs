//! Crowds of clients that want nothing but a place.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;

use crate::fail::OrFail;

/// Connections that a storm has open; of more, it resets the oldest ones.
const OPEN: usize = 2000;

/// Time between two looks of a storm whether it is in time.
const TICK: Duration = Duration::from_millis(5);

/// Lets this process open this number of files, and the programs that it starts.
pub fn allow_files(files: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) {
        let maximum = limit.maximum.map(|maximum| maximum.max(files));
        let raised = Rlimit { current: Some(files), maximum };
        setrlimit(Resource::Nofile, raised).or_fail("more open files");
    }
}

/// Addresses of the loopback interface, different ones up to 62,500: 127.1.1.1 is the first.
pub fn source(number: usize) -> Ipv4Addr {
    let part = |number: usize| u8::try_from(1 + number % 250).unwrap_or(1);
    Ipv4Addr::new(127, 1, part(number / 250), part(number))
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // A port is needed when it is known where to, and one of this address may go to many places.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
    let stream = socket.connect(to).await?;
    // An end without TIME_WAIT: there are not enough ports.
    stream.set_zero_linger()?;
    Ok(stream)
}

/// Connections that stay open, all of which have sent the same bytes and read nothing.
pub struct Crowd {
    streams: Vec<TcpStream>,
    runtime: Runtime,
}

impl Crowd {
    /// A crowd without connections.
    pub fn new() -> Self {
        Self {
            streams: Vec::new(),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().or_fail("a runtime"),
        }
    }

    /// `count` more connections from `from` that send `bytes`. The other end may close them before that.
    pub fn join(&mut self, from: Ipv4Addr, to: SocketAddr, count: usize, bytes: &[u8]) {
        self.runtime.block_on(async {
            for _ in 0..count {
                let mut stream = connect(from, to).await.or_fail("connect");
                stream.write_all(bytes).await.ok();
                self.streams.push(stream);
            }
        });
    }
}

impl Default for Crowd {
    fn default() -> Self {
        Self::new()
    }
}

/// A client that connects again and again and says nothing, until this is dropped.
pub struct Storm {
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Storm {
    /// Connects to `to` this number of times a second, from each of `sources` in turn.
    pub fn start(to: SocketAddr, sources: Vec<Ipv4Addr>, per_second: u32) -> Self {
        let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (Arc::clone(&count), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().or_fail("a runtime");
            runtime.block_on(rage(to, &sources, per_second, &counted, &stopped));
        });
        Self { count, stop, thread: Some(thread) }
    }

    /// Connections so far.
    pub fn connections(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

async fn rage(to: SocketAddr, sources: &[Ipv4Addr], per_second: u32, count: &AtomicU64, stop: &AtomicBool) {
    let started = Instant::now();
    let mut open = VecDeque::new();
    let mut turns = sources.iter().cycle();
    while !stop.load(Ordering::Relaxed) {
        let due = started.elapsed().as_secs_f64() * f64::from(per_second);
        while (count.load(Ordering::Relaxed) as f64) < due && !stop.load(Ordering::Relaxed) {
            let from = turns.next().or_fail("a source");
            // Its queue may be full, or the server gone.
            if let Ok(Ok(stream)) = tokio::time::timeout(TICK, connect(*from, to)).await {
                open.push_back(stream);
            }
            if open.len() > OPEN {
                open.pop_front();
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(TICK).await;
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
