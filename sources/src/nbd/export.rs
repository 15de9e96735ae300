//! The export as it was when it was opened, and new connections to it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use datapath::buffer::Pool;
use datapath::error::{SourceError, SourceErrorKind};
use rustls::ClientConfig;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::negotiation::negotiate;
use super::stream::connect;
use super::uri::NbdUri;
use crate::retry::{FIRST_ATTEMPTS, Failure, Patience, within};

/// Bytes that are asked for ahead on all connections together, and on one of them.
const AHEAD_BYTES: u64 = 16 << 20;
const MAX_AHEAD_BYTES: u64 = 8 << 20;

/// Reads of full length that are on their way at once on one connection: one arrives, one is worked at, two wait. With one
/// connection these are of 2 MiB, where a round trip does not show.
const REQUESTS: u64 = 4;

/// Reads are not made shorter than this, however many connections there are.
const MIN_READ_BYTES: u64 = 256 << 10;

/// How an export is reached.
pub(super) struct Server {
    pub(super) uri: NbdUri,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) patience: Patience,
    pub(super) pool: Pool,
}

impl Server {
    async fn connect(&self, limit: Duration) -> Result<Connection, Failure> {
        let connecting = async {
            let stream = connect(&self.uri.address).await?;
            negotiate(stream, &self.uri, &self.tls).await
        };
        let connected = within(limit, connecting).await;
        let (stream, agreement) = connected.map_err(|failure| failure.at(&self.uri.to_string()))?;
        Ok(Connection::new(stream, agreement, self.pool.clone()))
    }

    /// The first connection, tried again after what looks like a server that is just not there yet.
    pub(super) async fn first_connection(&self) -> Result<Connection, SourceError> {
        let retries = self.patience.retries.unwrap_or(u32::MAX);
        let attempts = FIRST_ATTEMPTS.min(retries.saturating_add(1));
        let mut attempt = 1;
        loop {
            match self.connect(self.patience.idle_limit).await {
                Ok(connection) => return Ok(connection),
                Err(Failure::Transient { error, .. }) if attempt < attempts => {
                    tracing::info!(attempt, cause = %error, "the NBD server is not ready, trying again");
                    // 1 s and 2 s with the default of half a second.
                    let pause = self.patience.first_delay.saturating_mul(1 << attempt);
                    tokio::time::sleep(pause.min(self.patience.max_delay)).await;
                    attempt += 1;
                }
                Err(failure) => return Err(failure.into_error()),
            }
        }
    }
}

/// An export of a known size.
pub(super) struct Export {
    pub(super) server: Server,
    pub(super) size: u64,
    /// How many connections the bytes are read over.
    pub(super) connections: NonZeroUsize,
    /// Ends every wait.
    pub(super) stop: CancellationToken,
}

impl Export {
    /// Bytes that are asked for ahead on each connection: what comes out of order has to be kept.
    pub(super) fn ahead_bytes(&self) -> u64 {
        let connections = u64::try_from(self.connections.get()).unwrap_or(u64::MAX);
        (AHEAD_BYTES / connections).min(MAX_AHEAD_BYTES)
    }

    /// Longest read: several of them are on their way on each connection.
    pub(super) fn read_bytes(&self) -> u64 {
        (self.ahead_bytes() / REQUESTS)
            .next_power_of_two()
            .max(MIN_READ_BYTES)
    }

    /// Another connection to the same export. NBD knows no validator: only another size tells that it changed.
    pub(super) async fn reconnect(&self, limit: Duration) -> Result<Connection, Failure> {
        let connection = self.server.connect(limit).await?;
        let size = connection.agreement().size;
        if size != self.size {
            let message = format!(
                "the NBD export had {} bytes when it was opened and has {size} now: it changed while it was read",
                self.size
            );
            return Err(Failure::Final(SourceError::new(
                SourceErrorKind::Changed,
                message,
            )));
        }
        Ok(connection)
    }
}
