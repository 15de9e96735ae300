//! Network block devices: exports of `qemu-nbd`, `nbdkit` and similar servers.
//!
//! An export has no validator. Only its size shows whether it is still the same after a connection
//! broke.

#[doc(hidden)] // for the fuzz targets
pub mod connection;
mod export;
mod negotiation;
mod transport;
mod uri;
#[doc(hidden)] // for the fuzz targets
pub mod wire;

use std::sync::Arc;

use fetch::Network;
use stream::error::SourceError;

use self::export::{NbdConnector, NbdExport};
pub use self::uri::NbdUri;
use crate::blocks::BlockSource;

/// An export with its first connection open.
pub type NbdSource = BlockSource<NbdExport>;

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
        let (size, is_shared) = (agreement.size, agreement.multi_conn);
        Ok(Self::new(NbdExport { server, size, is_shared }, connection))
    }
}
