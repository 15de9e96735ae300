//! The start of every server that tests script: a port of loopback, and a runtime of its own until it is dropped.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::fail::OrFail;
use crate::wire::Stream;

/// A server whose connections are served by a runtime of its own; stops when dropped.
pub(crate) struct ScriptedServer {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl ScriptedServer {
    /// Serves each connection to a new port by `serve`. Errors of a connection are the business of the peer.
    pub(crate) fn start<F: Future<Output: Send> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_on(bind()?, serve)
    }

    /// The same with a port that [`bind`] chose.
    pub(crate) fn start_on<F: Future<Output: Send> + Send + 'static>(
        listener: TcpListener,
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
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

/// A port of loopback. Not bound by a runtime: a test that has one of its own cannot wait for another.
pub(crate) fn bind() -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The connection as its server reads it: over TLS if there is a configuration.
pub(crate) async fn accept(tls: Option<&TlsAcceptor>, tcp: TcpStream) -> io::Result<Box<dyn Stream>> {
    Ok(match tls {
        None => Box::new(tcp),
        Some(tls) => Box::new(tls.accept(tcp).await?),
    })
}
