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
use crate::blocks::{BlockServer, MAX_REQUESTS, ReadLimits};

/// Limits of the bytes that are requested ahead, on all connections together and on one of them.
const REQUESTED_BYTES: u64 = 16 << 20;
const MAX_REQUESTED_BYTES: u64 = 8 << 20;

/// Reads of full length in flight on one connection: one arrives, one is processed, two wait. With
/// one connection each read is 2 MiB long, a size at which the round trip is negligible.
const REQUESTS: u64 = 4;

/// Lower limit of the longest read, however many connections there are.
const MIN_READ_BYTES: u64 = 256 << 10;

/// Maximum number of times that the longest read is halved: from 2 MiB to 64 KiB.
const MAX_SHRUNK: u32 = 5;

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
    fn retry_policy(&self) -> &RetryPolicy {
        &self.network.retry_policy
    }
}

/// An export whose size is known.
pub struct NbdExport {
    pub(super) server: NbdConnector,
    pub(super) size: u64,
    /// True if several connections at once see the same bytes.
    pub(super) is_shared: bool,
}

impl BlockServer for NbdExport {
    type Connection = NbdConnection;

    const TITLE: &'static str = "the NBD server";

    fn disk_name(&self) -> String {
        self.server.uri.to_string()
    }

    fn network(&self) -> &Arc<Network> {
        &self.server.network
    }

    fn disk_bytes(&self) -> u64 {
        self.size
    }

    fn connection_count(&self) -> usize {
        let wanted = self.server.network.connections.filter(|_| self.is_shared);
        wanted.map_or(1, NonZeroUsize::get)
    }

    /// Short reads make progress over connections that break during long ones, and they reach the
    /// readable data around a bad spot.
    fn read_limits(&self, connections: usize, failures: u32) -> ReadLimits {
        let share = REQUESTED_BYTES / u64::try_from(connections).unwrap_or(u64::MAX);
        let ahead_bytes = share.min(MAX_REQUESTED_BYTES);
        let longest = (ahead_bytes / REQUESTS).next_power_of_two().max(MIN_READ_BYTES);
        let read_bytes = longest >> failures.min(MAX_SHRUNK);
        ReadLimits { reads: MAX_REQUESTS, ahead_bytes, read_bytes }
    }

    /// NBD has no validator, so only a different size shows that the export has changed.
    async fn reconnect(
        &self,
        broken: &mut Option<NbdConnection>,
        limit: Duration,
    ) -> Result<NbdConnection, AttemptError> {
        *broken = None;
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
