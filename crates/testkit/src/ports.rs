//! Chooses free ports for servers that cannot choose one themselves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fail::OrFail;

/// Ports below those that Linux assigns automatically (`net.ipv4.ip_local_port_range` begins at
/// 32768). A port that was free here thus stays free until the server binds it.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns different ports that are free on loopback.
pub fn free<const N: usize>() -> [SocketAddr; N] {
    // Concurrent callers, in this process or another one, start their search at different ports.
    static LOOKED: AtomicUsize = AtomicUsize::new(0);
    let process = usize::try_from(std::process::id()).unwrap_or(0) % PORTS.len();
    let start = process * 37 + LOOKED.fetch_add(N, Ordering::Relaxed);
    let mut candidates = PORTS.cycle().skip(start % PORTS.len());
    let listeners: [TcpListener; N] = std::array::from_fn(|_| {
        candidates
            .find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
            .or_fail("a free port")
    });
    listeners.map(|listener| listener.local_addr().or_fail("a free port"))
}
