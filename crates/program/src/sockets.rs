//! TCP sockets for uploads: their options, and how clients connect.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::threads::{self, ThreadError};

/// Timeout for establishing a connection, as in Go's dialer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

/// Idle time after which TCP keepalive begins to probe a peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// Time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Number of unanswered keepalive probes after which the connection is closed.
const KEEPALIVE_COUNT: u32 = 4;

/// Limits the number of concurrent name look-ups, because each one takes a thread. Additional
/// look-ups wait.
static LOOKUPS: Semaphore = Semaphore::const_new(64);

/// Sets the options of a socket. Small messages are sent immediately (`TCP_NODELAY`). Keepalive
/// probes detect a peer that has disappeared (half-open connection, RFC 9293 §3.5.1) after two
/// minutes; without them it would never be detected.
pub fn prepare_socket(stream: &TcpStream) {
    let set = || -> io::Result<()> {
        let probes = TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_COUNT);
        stream.set_nodelay(true)?;
        SockRef::from(stream).set_tcp_keepalive(&probes)
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "a socket keeps its default options");
    }
}

/// The reason why a server cannot be reached, worded as in Go's dialer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {cause}")]
pub struct ConnectError {
    /// The step that failed, such as `dial tcp 10.0.0.1:8443: connect`.
    step: String,
    /// The cause, such as `connection refused`.
    pub cause: String,
}

impl ConnectError {
    fn for_lookup(host: &str, reason: &str) -> Self {
        Self { step: "dial tcp".to_owned(), cause: format!("lookup {host}: {reason}") }
    }
}

/// Connects to `port` of `host`, or to the address `instead` if it is given, and sets the socket's
/// options. `error_text` formats the error if an address cannot be reached.
pub async fn connect_tcp(
    host: &str,
    port: u16,
    instead: Option<SocketAddr>,
    error_text: impl Fn(&io::Error) -> String,
) -> Result<TcpStream, ConnectError> {
    let connecting = timeout(CONNECT_PATIENCE, connect_any(host, port, instead, error_text));
    let stream = connecting.await.unwrap_or_else(|_| {
        let cause = "i/o timeout".to_owned();
        Err(ConnectError { step: format!("dial tcp {host}:{port}"), cause })
    })?;
    prepare_socket(&stream);
    Ok(stream)
}

/// Resolves `host` to addresses with `port`. The error contains a [`ThreadError`] if the system
/// refuses to start a thread for the look-up.
pub async fn resolve_host(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    // This fails only if the semaphore is closed, which never happens.
    let turn = LOOKUPS.acquire().await.map_err(io::Error::other)?;
    let host = host.to_owned();
    let looking = threads::run_blocking(move || {
        let _turn = turn;
        (host.as_str(), port).to_socket_addrs().map(Vec::from_iter)
    });
    looking.await.map_err(io::Error::other)?
}

/// True for the error of a look-up that found no address. It is false if the name servers did not
/// answer, or could not. The standard library passes on only the C library's texts (glibc's and
/// musl's, gai_strerror(3)), which are never translated because no locale is set.
pub fn is_unknown_host(error: &io::Error) -> bool {
    const UNKNOWN: &[&str] = &[
        "Name or service not known",
        "No address associated with hostname",
        "nodename nor servname provided",
        "Name does not resolve",
        "Name has no usable address",
        // Windows (WSAHOST_NOT_FOUND, WSANO_DATA). The numbers do not depend on the language.
        "(os error 11001)",
        "(os error 11004)",
    ];
    let text = error.to_string();
    (text.starts_with("failed to lookup address information: ") || cfg!(windows))
        && UNKNOWN.iter().any(|unknown| text.contains(unknown))
}

async fn connect_any(
    host: &str,
    port: u16,
    instead: Option<SocketAddr>,
    error_text: impl Fn(&io::Error) -> String,
) -> Result<TcpStream, ConnectError> {
    let addresses: Vec<SocketAddr> = match instead {
        Some(address) => vec![address],
        None => resolve_host(host, port).await.map_err(|error| {
            let refused = error.get_ref().and_then(|cause| cause.downcast_ref::<ThreadError>());
            let reason = refused.map_or_else(|| "no such host".to_owned(), ThreadError::to_string);
            ConnectError::for_lookup(host, &reason)
        })?,
    };
    let mut failure = ConnectError::for_lookup(host, "no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                let step = format!("dial tcp {address}: connect");
                failure = ConnectError { step, cause: error_text(&error) };
            }
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_host_is_told_from_name_servers_that_do_not_answer() {
        let failed =
            |text| io::Error::other(format!("failed to lookup address information: {text}"));
        assert!(is_unknown_host(&failed("Name or service not known")));
        for text in ["Temporary failure in name resolution", "Try again", "System error"] {
            assert!(!is_unknown_host(&failed(text)), "{text}");
        }
        assert!(!is_unknown_host(&io::ErrorKind::ConnectionRefused.into()));
    }
}
