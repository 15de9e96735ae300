//! A forward proxy for plain HTTP (absolute URLs) and for tunnels (`CONNECT`, SOCKS5) that records
//! the requests it receives.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::serving::ScriptedServer;
use crate::wire;
use crate::wire::{Request, Stream};

const SOCKS_VERSION: u8 = 5;

/// The address type of a host name (RFC 1928 §5).
const SOCKS_NAME: u8 = 3;

/// A running proxy on a free loopback port. It stops when dropped.
pub struct ForwardProxy {
    requests: Arc<Mutex<Vec<Request>>>,
    server: ScriptedServer,
}

impl ForwardProxy {
    /// Starts a proxy that sends every request to `upstream`, whatever host the request names, so
    /// that tests can use names that do not resolve.
    pub fn start(upstream: SocketAddr) -> io::Result<Self> {
        Self::start_with(upstream, None)
    }

    /// Like [`start`](Self::start), for clients that connect to the proxy over TLS. SOCKS is not
    /// supported.
    pub fn start_tls(upstream: SocketAddr, tls: Arc<rustls::ServerConfig>) -> io::Result<Self> {
        Self::start_with(upstream, Some(tls.into()))
    }

    fn start_with(upstream: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let seen = Arc::clone(&requests);
        let serve = move |client| receive(client, tls.clone(), upstream, Arc::clone(&seen));
        let server = ScriptedServer::start(serve)?;
        Ok(Self { requests, server })
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The first request of every connection so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type Seen = Arc<Mutex<Vec<Request>>>;

fn record(seen: &Seen, request: Request) {
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(request);
}

async fn receive(
    mut client: TcpStream,
    tls: Option<TlsAcceptor>,
    upstream: SocketAddr,
    seen: Seen,
) -> io::Result<()> {
    if let Some(tls) = tls {
        return forward(&mut tls.accept(client).await?, upstream, &seen).await;
    }
    let mut first = [0];
    client.peek(&mut first).await?;
    if first == [SOCKS_VERSION] {
        return tunnel_socks(&mut client, upstream, &seen).await;
    }
    forward(&mut client, upstream, &seen).await
}

async fn forward(client: &mut dyn Stream, upstream: SocketAddr, seen: &Seen) -> io::Result<()> {
    let Some(request) = Request::read(client).await? else {
        return Ok(());
    };
    record(seen, request.clone());
    let mut server = TcpStream::connect(upstream).await?;
    if request.method == "CONNECT" {
        wire::write_head(client, 200, &[]).await?;
        client.flush().await?;
    } else {
        let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.path());
        for (name, value) in &request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        server.write_all(format!("{head}\r\n").as_bytes()).await?;
    }
    tokio::io::copy_bidirectional(client, &mut server).await?;
    Ok(())
}

async fn tunnel_socks(client: &mut TcpStream, upstream: SocketAddr, seen: &Seen) -> io::Result<()> {
    let Some(request) = accept_socks(client).await? else {
        return Ok(());
    };
    record(seen, request);
    let mut server = TcpStream::connect(upstream).await?;
    // The reply for success, with the bound address 0.0.0.0:0.
    client.write_all(&[SOCKS_VERSION, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    tokio::io::copy_bidirectional(client, &mut server).await?;
    Ok(())
}

/// Accepts a SOCKS5 request (RFC 1928) without authentication and for host names only. It is
/// recorded as a request with the method `SOCKS5`.
async fn accept_socks(client: &mut TcpStream) -> io::Result<Option<Request>> {
    let mut methods = vec![0; usize::from(read_pair(client).await?.1)];
    client.read_exact(&mut methods).await?;
    client.write_all(&[SOCKS_VERSION, 0]).await?;
    read_pair(client).await?;
    if read_pair(client).await?.1 != SOCKS_NAME {
        return Ok(None);
    }
    let mut name = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut name).await?;
    let port = client.read_u16().await?;
    Ok(Some(Request {
        method: "SOCKS5".to_owned(),
        target: format!("{}:{port}", String::from_utf8_lossy(&name)),
        headers: Vec::new(),
    }))
}

async fn read_pair(client: &mut TcpStream) -> io::Result<(u8, u8)> {
    Ok((client.read_u8().await?, client.read_u8().await?))
}
