//! Chooses free ports for servers that cannot choose one themselves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};

use crate::fail::OrFail;

/// Ports below those that Linux assigns automatically (`net.ipv4.ip_local_port_range` begins at
/// 32768). A port that was free here thus stays free until the server binds it.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Returns different ports that are free on loopback. No other call returns them, in this process
/// or another one, until this process ends: of two servers with one port, the second would not
/// start, and the first would be taken for it.
pub fn free<const N: usize>() -> [SocketAddr; N] {
    // Processes start their search at different ports.
    let start = usize::try_from(std::process::id()).unwrap_or(0) * 37 % PORTS.len();
    let mut candidates = PORTS.cycle().skip(start).take(PORTS.len());
    std::array::from_fn(|_| candidates.find_map(reserve).or_fail("a free port"))
}

/// Reserves `port` until this process ends, unless it is reserved or in use.
fn reserve(port: u16) -> Option<SocketAddr> {
    // The kernel gives an abstract name (unix(7)) to one socket at a time, in the same network
    // namespace in which ports are unique.
    let name = UnixAddress::from_abstract_name(format!("cdi-workers test port {port}")).ok()?;
    let reservation = UnixDatagram::bind_addr(&name).ok()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    Box::leak(Box::new(reservation));
    listener.local_addr().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_although_nothing_uses_it_yet() {
        let [first] = free();
        // The search now has to pass over a port that something else uses.
        let _other = TcpListener::bind((Ipv4Addr::LOCALHOST, first.port() + 1));
        let [second, third] = std::array::from_fn(|_| free::<1>()[0]);
        assert!(first != second && second != third && third != first);
    }
}
