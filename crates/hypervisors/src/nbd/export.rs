//! An export as it was when it was opened, and new connections to it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use fetch::Network;
use fetch::retry::{AttemptError, RetryPolicy, with_time_limit};
use stream::error::{SourceError, SourceErrorKind};

use super::connection::NbdConnection;
use super::negotiation::negotiate;
use super::transport::connect;
use super::uri::NbdUri;

/// Limits of the bytes that are requested ahead, on all connections together and on one of them.
const REQUESTED_BYTES: u64 = 16 << 20;
const MAX_REQUESTED_BYTES: u64 = 8 << 20;

/// Reads of full length in flight on one connection: one arrives, one is processed, two wait. With
/// one connection each read is 2 MiB long, a size at which the round trip is negligible.
const REQUESTS: u64 = 4;

/// Lower limit of the longest read, however many connections there are.
const MIN_READ_BYTES: u64 = 256 << 10;

/// Creates connections to an export.
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
        let (stream, agreement) =
            connected.map_err(|failure| failure.with_context(&self.uri.to_string()))?;
        Ok(NbdConnection::new(stream, agreement))
    }

    /// Opens the first connection, with retries while the server seems to be temporarily
    /// unavailable.
    pub(super) async fn first_connection(&self) -> Result<NbdConnection, SourceError> {
        let limit = self.retry_policy().idle_limit();
        let mut contact = self.network.first_contact();
        loop {
            match self.connect(limit).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => contact.pause_after(failure).await?,
            }
        }
    }

    /// Returns the limits for retries and timeouts.
    pub(super) fn retry_policy(&self) -> &RetryPolicy {
        &self.network.retry_policy
    }
}

/// An export whose size is known.
pub(super) struct NbdExport {
    pub(super) server: NbdConnector,
    pub(super) size: u64,
    /// True if several connections at once see the same bytes.
    pub(super) is_shared: bool,
}

impl NbdExport {
    /// Returns over how many connections the whole export is read.
    pub(super) fn connection_count(&self) -> usize {
        let wanted = self.server.network.connections.filter(|_| self.is_shared);
        wanted.map_or(1, NonZeroUsize::get)
    }

    /// Returns how many bytes are requested ahead on each connection. The number is limited
    /// because bytes that arrive out of order have to be kept.
    pub(super) fn ahead_bytes(&self) -> u64 {
        let connections = u64::try_from(self.connection_count()).unwrap_or(u64::MAX);
        (REQUESTED_BYTES / connections).min(MAX_REQUESTED_BYTES)
    }

    /// Returns the length of the longest read. Several such reads are in flight on each
    /// connection.
    pub(super) fn read_bytes(&self) -> u64 {
        (self.ahead_bytes() / REQUESTS).next_power_of_two().max(MIN_READ_BYTES)
    }

    /// Opens another connection to the same export. NBD has no validator, so only a different size
    /// shows that the export has changed.
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
