//! An asynchronous client, for thousands of connections in one thread.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use testkit::fail::OrFail;
use testkit::upload_proxy::Scripted;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The address of the proxy, and the heads of uploads.
pub(crate) struct Client {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    /// One for each PVC.
    heads: Vec<Vec<u8>>,
}

impl Client {
    /// Returns a client whose uploads have `length` bytes.
    pub(crate) fn new(front: &Scripted, length: usize) -> Arc<Self> {
        let head =
            |pvc: &String| front.request_for(pvc, "POST", crate::PATH).length(length).bytes();
        Arc::new(Self {
            address: front.server.address(),
            config: front.proxy.front().client_config().or_fail("TLS"),
            heads: front.pvcs.iter().map(head).collect(),
        })
    }

    /// Begins an upload to the PVC of this number.
    pub(crate) async fn upload(&self, pvc: usize) -> TlsStream<TcpStream> {
        self.try_upload(pvc).await.or_fail("an upload")
    }

    /// Like [`Client::upload`], but returns an error if the proxy is gone or closes the
    /// connection.
    pub(crate) async fn try_upload(&self, pvc: usize) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::IpAddress(self.address.ip().into());
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = TcpStream::connect(self.address).await?;
        let mut stream = connector.connect(name, stream).await?;
        stream.write_all(&self.heads[pvc]).await?;
        stream.flush().await?;
        Ok(stream)
    }
}
