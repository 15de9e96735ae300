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
mod selection;
mod stream;
mod uri;
mod wire;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datapath::buffer::CHUNK_BYTES;
use datapath::error::SourceError;
use datapath::source::{Body, Source};
use datapath::zeros::is_known_zero;
use parking_lot::Mutex;

use self::connection::Connection;
use self::download::Download;
use self::export::{Export, Server};
use self::selection::Selection;
pub use self::uri::NbdUri;
use super::engine::{Outlet, Remote, RemoteBody, check_range, collect};
use super::network::{Network, stopped};

/// Longest wait for a server to hear goodbye.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

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

    /// The body of an object that is `ranges` of the export, one after the other: in order, within its size, none of them empty.
    /// In place of [`Source::body`].
    pub(crate) fn selected(&self, ranges: &Arc<[Range<u64>]>) -> Box<dyn Body> {
        let selection = Selection {
            export: Arc::clone(&self.export),
            ranges: Arc::clone(ranges),
        };
        Box::new(RemoteBody::new(
            Arc::new(selection),
            self.first.lock().take(),
            true,
        ))
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

impl Remote for Export {
    type Connection = Connection;

    const AHEAD_BYTES: u64 = 8 << 20;

    fn network(&self) -> &Network {
        &self.server.network
    }

    fn length(&self) -> Option<u64> {
        Some(self.size)
    }

    fn connections(&self) -> usize {
        let wanted = self.network().connections.filter(|_| self.is_shared);
        wanted.map_or(1, NonZeroUsize::get)
    }

    async fn read(
        &self,
        ranges: impl Iterator<Item = Range<u64>> + Send,
        first: Option<Connection>,
        outlet: Outlet,
    ) -> Result<(), SourceError> {
        let ranges = ranges.map(|range| range.start..range.end.min(self.size));
        self.pass(ranges, first, outlet).await
    }
}

impl Export {
    /// Reads `ranges`, which lie within the export, and hands them over.
    async fn pass(
        &self,
        ranges: impl Iterator<Item = Range<u64>> + Send,
        first: Option<Connection>,
        outlet: Outlet,
    ) -> Result<(), SourceError> {
        let mut download = Download::new(self, ranges, first, true);
        let mut is_wanted = true;
        while is_wanted && let Some(bytes) = download.next().await? {
            let held = if is_known_zero(&bytes) { 0 } else { CHUNK_BYTES };
            is_wanted = outlet.send(bytes, held).await.is_ok();
        }
        // What was asked for is taken, and goodbye said: servers are not always up to clients that go away in the middle.
        if let Some(connection) = download.finish().await {
            connection.close(CLOSE_LIMIT).await;
        }
        if is_wanted { Ok(()) } else { Err(stopped()) }
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
        let first = self.first.lock().take();
        Ok(Box::new(RemoteBody::new(Arc::clone(&self.export), first, true)))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        check_range(&range, self.export.size)?;
        let mut connection = self.second.lock();
        let network = &self.export.server.network;
        network.block_on(self.collect(range, &mut connection))
    }
}
