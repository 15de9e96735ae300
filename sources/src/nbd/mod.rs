//! Network block devices: disks of `qemu-nbd`, `nbdkit` and their kind, holes left out, several requests on their way.
//!
//! ```text
//!  NbdSource ── open: connect, negotiate ──► Export (size) + the first Connection
//!     ├─ body() ─► engine ─► Export::read ─► Download ─► Connection   continued on a new one after each failure
//!     └─ read_range() ─────────────────────► Download ─► Connection   another one, kept for the next range
//! ```
//!
//! An export has no validator: that it is still the same after a connection broke, only its size tells.

mod agreement;
mod assembly;
mod connection;
mod download;
mod export;
mod extents;
mod negotiation;
mod stream;
mod uri;
mod wire;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use datapath::buffer::Pool;
use datapath::error::SourceError;
use datapath::source::{Body, Source};

use self::connection::Connection;
use self::download::Download;
use self::export::{Export, Server};
pub use self::uri::NbdUri;
use super::engine::{RemoteBody, check_range, collect};
use super::network::Network;

/// An export whose first connection is open. All methods block; do not call them inside an asynchronous task.
pub struct NbdSource {
    export: Arc<Export>,
    /// The connection that the body is read over.
    first: Mutex<Option<Connection>>,
    /// The connection for ranges, which are read one at a time.
    second: Mutex<Option<Connection>>,
}

impl NbdSource {
    /// Connects to the export that `uri` names (see [`NbdUri::parse`]) and agrees with the server on how to read it.
    pub fn open(uri: &str, network: &Arc<Network>) -> Result<Self, SourceError> {
        Self::at(NbdUri::parse(uri)?, network)
    }

    /// Connects to the export at `uri`.
    pub fn at(uri: NbdUri, network: &Arc<Network>) -> Result<Self, SourceError> {
        let server = Server {
            uri,
            network: Arc::clone(network),
            pool: Pool::default(),
        };
        let connection = network.block_on(server.first_connection())?;
        let agreement = connection.agreement();
        Ok(Self {
            export: Arc::new(Export {
                server,
                size: agreement.size,
                is_shared: agreement.multi_conn,
            }),
            first: Mutex::new(Some(connection)),
            second: Mutex::new(None),
        })
    }

    async fn collect(
        &self,
        range: Range<u64>,
        connection: &mut Option<Connection>,
    ) -> Result<Bytes, SourceError> {
        let length = range.end - range.start;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let mut download = Download::new(&self.export, std::iter::once(range), connection.take(), false);
        let bytes = collect(length, async || download.next().await).await?;
        *connection = download.finish().await;
        Ok(bytes)
    }
}

impl Source for NbdSource {
    fn name(&self) -> String {
        self.export.server.uri.to_string()
    }

    fn length(&self) -> Option<u64> {
        Some(self.export.size)
    }

    fn is_ranged(&self) -> bool {
        true
    }

    fn body(&self) -> Result<Box<dyn Body>, SourceError> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(Box::new(RemoteBody::new(Arc::clone(&self.export), first, true)))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        check_range(&range, self.export.size)?;
        let mut connection = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        let network = &self.export.server.network;
        network.block_on(self.collect(range, &mut connection))
    }
}
