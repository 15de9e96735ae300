//! Large numbers of clients that only occupy connections.

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

/// Most connections that a storm keeps open. Beyond that, it resets the oldest ones.
const OPEN: usize = 2000;

/// Connections after which a crowd lets the peer take them. If the peer's queue were full, the
/// kernel would send the next SYN again only after a second (RFC 6298 §2.1).
const QUEUE: usize = 256;

/// Interval at which a storm checks how many connections are due.
const TICK: Duration = Duration::from_millis(5);

/// Raises the limit of open files of this process, and of the programs that it starts, to this
/// number.
pub fn allow_files(files: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) {
        let maximum = limit.maximum.map(|maximum| maximum.max(files));
        let raised = Rlimit { current: Some(files), maximum };
        setrlimit(Resource::Nofile, raised).or_fail("more open files");
    }
}

/// Returns one of 62,500 addresses of the loopback interface. The first is 127.1.1.1.
pub fn source(number: usize) -> Ipv4Addr {
    let part = |number: usize| u8::try_from(1 + number % 250).unwrap_or(1);
    Ipv4Addr::new(127, 1, part(number / 250), part(number))
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // With SO_REUSEADDR, connections to different servers can share a source port.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::new(IpAddr::V4(from), 0))?;
    let stream = socket.connect(to).await?;
    // Zero linger avoids TIME_WAIT, which would use up the ports.
    stream.set_zero_linger()?;
    Ok(stream)
}

/// Connections that stay open. All of them have sent the same bytes and read nothing.
pub struct Crowd {
    streams: Vec<TcpStream>,
    runtime: Runtime,
}

impl Crowd {
    /// A crowd without connections.
    pub fn new() -> Self {
        Self {
            streams: Vec::new(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .or_fail("a runtime"),
        }
    }

    /// Opens `count` more connections, the first from the address `from(0)`, each of which sends
    /// `bytes`. The peer may close them earlier.
    pub fn join(
        &mut self,
        from: impl Fn(usize) -> Ipv4Addr,
        to: SocketAddr,
        count: usize,
        bytes: &[u8],
    ) {
        self.runtime.block_on(async {
            for number in 0..count {
                let mut stream = connect(from(number), to).await.or_fail("connect");
                stream.write_all(bytes).await.ok();
                self.streams.push(stream);
                if number % QUEUE == QUEUE - 1 {
                    tokio::time::sleep(TICK).await;
                }
            }
        });
    }
}

impl Default for Crowd {
    fn default() -> Self {
        Self::new()
    }
}

/// A client that keeps opening connections without sending anything, until it is dropped.
pub struct Storm {
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Storm {
    /// Opens this number of connections to `to` each second, from each of the `sources` in turn.
    pub fn start(to: SocketAddr, sources: Vec<Ipv4Addr>, per_second: u32) -> Self {
        let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stopped) = (Arc::clone(&count), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .or_fail("a runtime");
            runtime.block_on(rage(to, &sources, per_second, &counted, &stopped));
        });
        Self { count, stop, thread: Some(thread) }
    }

    /// Number of connections so far.
    pub fn connections(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

async fn rage(
    to: SocketAddr,
    sources: &[Ipv4Addr],
    per_second: u32,
    count: &AtomicU64,
    stop: &AtomicBool,
) {
    let started = Instant::now();
    let mut open = VecDeque::new();
    let mut turns = sources.iter().cycle();
    while !stop.load(Ordering::Relaxed) {
        let due = started.elapsed().as_secs_f64() * f64::from(per_second);
        while (count.load(Ordering::Relaxed) as f64) < due && !stop.load(Ordering::Relaxed) {
            let from = turns.next().or_fail("a source");
            // The server's queue may be full, or the server may have ended.
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
