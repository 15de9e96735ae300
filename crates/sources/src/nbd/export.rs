//! The export as it was when it was opened, and new connections to it.

use std::sync::Arc;
use std::time::Duration;

use datapath::error::{SourceError, SourceErrorKind};

use super::connection::NbdConnection;
use super::negotiation::negotiate;
use super::stream::connect;
use super::uri::NbdUri;
use crate::engine::RemoteObject;
use crate::network::Network;
use crate::retry::{AttemptError, RetryPolicy, with_time_limit};

/// Bytes that are asked for ahead on all connections together, and on one of them.
const REQUESTED_BYTES: u64 = 16 << 20;
const MAX_REQUESTED_BYTES: u64 = 8 << 20;

/// Reads of full length that are on their way at once on one connection: one arrives, one is worked at, two wait. With one
/// connection these are of 2 MiB, where a round trip does not show.
const REQUESTS: u64 = 4;

/// Reads are not made shorter than this, however many connections there are.
const MIN_READ_BYTES: u64 = 256 << 10;

/// The way to an export.
pub(super) struct NbdConnector {
    pub(super) uri: NbdUri,
    pub(super) network: Arc<Network>,
}

impl NbdConnector {
    async fn connect(&self, limit: Duration) -> Result<NbdConnection, AttemptError> {
        let connecting = async {
            let stream = connect(&self.uri.address).await?;
            negotiate(stream, &self.uri, &self.network.tls).await
        };
        let connected = with_time_limit(limit, connecting).await;
        let (stream, agreement) = connected.map_err(|failure| failure.with_context(&self.uri.to_string()))?;
        Ok(NbdConnection::new(stream, agreement))
    }

    /// The first connection, tried again after what looks like a server that is just not there yet.
    pub(super) async fn first_connection(&self) -> Result<NbdConnection, SourceError> {
        let limit = self.retry_policy().idle_limit();
        // What accepts a connection and then says nothing is another kind of server: it would not greet the second time either.
        let passes = |error: &SourceError| error.kind() != SourceErrorKind::Stalled;
        let connecting = self.network.retry_first_request(passes, async || self.connect(limit).await);
        connecting.await
    }

    /// Limits of trying again and of waiting.
    pub(super) fn retry_policy(&self) -> &RetryPolicy {
        &self.network.patience
    }
}

/// An export of a known size.
pub(super) struct NbdExport {
    pub(super) server: NbdConnector,
    pub(super) size: u64,
    /// Several connections at once see the same bytes.
    pub(super) is_shared: bool,
}

impl NbdExport {
    /// Bytes that are asked for ahead on each connection: what comes out of order has to be kept.
    pub(super) fn ahead_bytes(&self) -> u64 {
        let connections = u64::try_from(self.connection_count()).unwrap_or(u64::MAX);
        (REQUESTED_BYTES / connections).min(MAX_REQUESTED_BYTES)
    }

    /// Longest read: several of them are on their way on each connection.
    pub(super) fn read_bytes(&self) -> u64 {
        (self.ahead_bytes() / REQUESTS).next_power_of_two().max(MIN_READ_BYTES)
    }

    /// Another connection to the same export. NBD knows no validator: only another size tells that it changed.
    pub(super) async fn reconnect(&self, limit: Duration) -> Result<NbdConnection, AttemptError> {
        let connection = self.server.connect(limit).await?;
        let size = connection.agreement().size;
        if size != self.size {
            let message = format!(
                "the NBD export had {} bytes when it was opened and has {size} now: it changed while it was read",
                self.size
            );
            return Err(AttemptError::new_final(SourceErrorKind::Changed, message));
        }
        Ok(connection)
    }
}
