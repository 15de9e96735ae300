//! The base of all scripted servers: a loopback port and a runtime that ends when the server is
//! dropped.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::fail::OrFail;
use crate::wire::Stream;

/// A server whose connections are served by its own runtime. It stops when dropped.
pub(crate) struct ScriptedServer {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl ScriptedServer {
    /// Serves each connection to a free port with `serve`. Errors of a connection are ignored: its
    /// peer notices them.
    pub(crate) fn start<F: Future<Output: Send> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_on(bind()?, serve)
    }

    /// Like [`start`](Self::start), on a listener made by [`bind`].
    pub(crate) fn start_on<F: Future<Output: Send> + Send + 'static>(
        listener: TcpListener,
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).or_fail("a listener");
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(tcp));
            }
        });
        Ok(Self { address, runtime: Some(runtime) })
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Binds a free loopback port. This uses no runtime, because a test that runs in one cannot block
/// on another.
pub(crate) fn bind() -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns the connection for reading requests, over TLS if there is a configuration.
pub(crate) async fn accept(
    tls: Option<&TlsAcceptor>,
    tcp: TcpStream,
) -> io::Result<Box<dyn Stream>> {
    Ok(match tls {
        None => Box::new(tcp),
        Some(tls) => Box::new(tls.accept(tcp).await?),
    })
}
