//! Options of TCP sockets that carry uploads.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A peer that says nothing for this time is asked whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// Time between two questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Questions without an answer after which it is gone.
const KEEPALIVE_COUNT: u32 = 4;

/// Small messages leave at once, and a peer that vanished without a word (half-open connection, RFC 9293 §3.5.1) is
/// noticed after two minutes instead of never.
pub fn prepare(stream: &TcpStream) {
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
