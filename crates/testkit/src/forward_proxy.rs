//! A forward proxy for plain HTTP (absolute URLs) and for tunnels (`CONNECT`, SOCKS5) that records
//! the requests it receives.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::serving::{self, ScriptedServer, lock};
use crate::wire::{self, Request, Stream};

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
        lock(&self.requests).clone()
    }
}

type Seen = Arc<Mutex<Vec<Request>>>;

async fn receive(
    mut client: TcpStream,
    tls: Option<TlsAcceptor>,
    upstream: SocketAddr,
    seen: Seen,
) -> io::Result<()> {
    let mut first = [0];
    if tls.is_none() && client.peek(&mut first).await? == 1 && first == [SOCKS_VERSION] {
        return tunnel_socks(&mut client, upstream, &seen).await;
    }
    forward(&mut *serving::accept(tls.as_ref(), client).await?, upstream, &seen).await
}

async fn forward(client: &mut dyn Stream, upstream: SocketAddr, seen: &Seen) -> io::Result<()> {
    let Some(request) = Request::read(client).await? else {
        return Ok(());
    };
    lock(seen).push(request.clone());
    let mut server = TcpStream::connect(upstream).await?;
    if request.method == "CONNECT" {
        wire::write_head(client, 200, &[]).await?;
        client.flush().await?;
    } else {
        let fields = wire::fields(&request.headers);
        let head = format!("{} {} HTTP/1.1\r\n{fields}\r\n", request.method, request.path());
        server.write_all(head.as_bytes()).await?;
    }
    tokio::io::copy_bidirectional(client, &mut server).await?;
    Ok(())
}

async fn tunnel_socks(client: &mut TcpStream, upstream: SocketAddr, seen: &Seen) -> io::Result<()> {
    let Some(request) = accept_socks(client).await? else {
        return Ok(());
    };
    lock(seen).push(request);
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
