//! Network block devices: exports of `qemu-nbd`, `nbdkit` and similar servers. Holes are not
//! transferred, and several requests are in flight.
//!
//! ```text
//!  NbdSource ── open: connect, negotiate ──► NbdExport (size) + the first NbdConnection
//!     │
//!     │  resumed on a new connection after each failure:
//!     ├─ open_body() ─► engine ─► ExportSelection ────────► NbdDownload ─► NbdConnection
//!     │
//!     │  on another connection, which is kept for the next range:
//!     └─ read_range() ────────────────────────────────────► NbdDownload ─► NbdConnection
//! ```
//!
//! An export has no validator. Only its size shows whether it is still the same after a connection
//! broke.

mod assembly;
#[doc(hidden)] // for the fuzz targets
pub mod connection;
mod download;
mod export;
mod extents;
mod negotiation;
mod selection;
mod transport;
mod uri;
#[doc(hidden)] // for the fuzz targets
pub mod wire;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fetch::Network;
use fetch::engine::{RemoteBody, check_range, collect_chunks};
use parking_lot::Mutex;
use stream::error::SourceError;
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};

use self::connection::NbdConnection;
use self::download::NbdDownload;
use self::export::{NbdConnector, NbdExport};
use self::selection::ExportSelection;
pub use self::uri::NbdUri;

/// An export with its first connection open. All methods block, so they must not be called inside
/// an asynchronous task.
pub struct NbdSource {
    export: Arc<NbdExport>,
    /// The first connection, over which the body is read.
    first: Mutex<Option<NbdConnection>>,
    /// The connection for ranges, which are read one at a time.
    second: Mutex<Option<NbdConnection>>,
}

impl NbdSource {
    /// Connects to the export that `uri` identifies (see [`NbdUri::parse`]) and negotiates with
    /// the server how to read it.
    pub fn open(uri: &str, network: &Arc<Network>) -> Result<Self, SourceError> {
        Self::open_uri(NbdUri::parse(uri)?, network)
    }

    /// Connects to the export at `uri`.
    pub(crate) fn open_uri(uri: NbdUri, network: &Arc<Network>) -> Result<Self, SourceError> {
        let server = NbdConnector { uri, network: Arc::clone(network) };
        let connection = network.block_on(server.first_connection())?;
        let agreement = connection.agreement();
        Ok(Self {
            export: Arc::new(NbdExport {
                server,
                size: agreement.size,
                is_shared: agreement.multi_conn,
            }),
            first: Mutex::new(Some(connection)),
            second: Mutex::new(None),
        })
    }

    /// Returns the body of an object that consists of `ranges` of the export, one after the other.
    /// The ranges must be in order, within the export and not empty. Used in place of
    /// [`Source::open_body`].
    pub(crate) fn ranges_body(&self, ranges: &Arc<[Range<u64>]>) -> Box<dyn SourceBody> {
        // One connection is enough: most ranges are small, and many requests are in flight on it.
        self.body_of(Arc::clone(ranges), 1)
    }

    fn body_of(&self, ranges: Arc<[Range<u64>]>, connections: usize) -> Box<dyn SourceBody> {
        let export = Arc::clone(&self.export);
        let selection = ExportSelection { export, ranges, connections };
        Box::new(RemoteBody::new(Arc::new(selection), self.first.lock().take(), true))
    }

    async fn collect_range(
        &self,
        range: Range<u64>,
        connection: &mut Option<NbdConnection>,
    ) -> Result<Bytes, SourceError> {
        let length = range.end - range.start;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let mut download =
            NbdDownload::new(&self.export, std::iter::once(range), connection.take(), false);
        let bytes = collect_chunks(length, async || download.next().await).await?;
        *connection = download.into_connection().await;
        Ok(bytes)
    }
}

impl Source for NbdSource {
    fn name(&self) -> String {
        self.export.server.uri.to_string()
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.export.size)
    }

    fn is_ranged(&self) -> bool {
        true
    }

    /// An export is a block device.
    fn stated_disk(&self) -> Option<StatedDisk> {
        Some(StatedDisk::PLAIN)
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let whole = std::iter::once(0..self.export.size).collect();
        Ok(self.body_of(whole, self.export.connection_count()))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        check_range(&range, self.export.size)?;
        let mut connection = self.second.lock();
        let network = &self.export.server.network;
        network.block_on(self.collect_range(range, &mut connection))
    }
}
