//! TCP sockets that carry uploads: their options, and how clients connect.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::threads::{self, ThreadError};

/// Time limit of a connection (as Go's dialer).
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

/// A peer that says nothing for this time is asked whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// Time between two questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Questions without an answer after which it is gone.
const KEEPALIVE_COUNT: u32 = 4;

/// Names that are looked up at once, by a thread for each; more wait.
static LOOKUPS: Semaphore = Semaphore::const_new(64);

/// Small messages leave at once, and a peer that vanished without a word (half-open connection, RFC 9293 §3.5.1) is
/// noticed after two minutes instead of never.
pub fn prepare_socket(stream: &TcpStream) {
    let set = || {
        sockopt::set_tcp_nodelay(stream, true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "a socket keeps its default options");
    }
}

/// Connects to `port` of `host`, or to `instead` of it, and prepares the socket. The error is a sentence as Go's dialer has it, with
/// the words of `said` about an address that cannot be reached.
pub async fn connect_tcp(
    host: &str,
    port: u16,
    instead: Option<SocketAddr>,
    said: impl Fn(&io::Error) -> String,
) -> Result<TcpStream, String> {
    let stream = timeout(CONNECT_PATIENCE, connect_any(host, port, instead, said))
        .await
        .unwrap_or_else(|_| Err(format!("dial tcp {host}:{port}: i/o timeout")))?;
    prepare_socket(&stream);
    Ok(stream)
}

/// The addresses of `host`, with `port`. The error is a [`ThreadError`] if no thread can be had
/// that asks for them.
pub async fn resolve_host(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    // It is never closed.
    let turn = LOOKUPS.acquire().await.map_err(io::Error::other)?;
    let host = host.to_owned();
    let looking = threads::run_blocking(move || {
        let _turn = turn;
        (host.as_str(), port).to_socket_addrs().map(Vec::from_iter)
    });
    looking.await.map_err(io::Error::other)?
}

async fn connect_any(
    host: &str,
    port: u16,
    instead: Option<SocketAddr>,
    said: impl Fn(&io::Error) -> String,
) -> Result<TcpStream, String> {
    let addresses: Vec<SocketAddr> = match instead {
        Some(address) => vec![address],
        None => resolve_host(host, port).await.map_err(|error| {
            let refused = error.get_ref().and_then(|cause| cause.downcast_ref::<ThreadError>());
            let reason = refused.map_or_else(|| "no such host".to_owned(), ThreadError::to_string);
            format!("dial tcp: lookup {host}: {reason}")
        })?,
    };
    let mut failure = format!("dial tcp: lookup {host}: no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = format!("dial tcp {address}: connect: {}", said(&error)),
        }
    }
    Err(failure)
}
