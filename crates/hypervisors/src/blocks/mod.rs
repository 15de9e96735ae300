//! Disks that are read over a connection with several requests under way: NBD exports, and disks
//! of ESXi hosts. Holes are not transferred.
//!
//! ```text
//!  BlockSource: a BlockServer, which connects, and the first BlockConnection
//!     │
//!     │  resumed on a new connection after each failure:
//!     ├─ open_body() ─► engine ─► DiskSelection ────────► BlockDownload ─► BlockConnection
//!     │
//!     │  on another connection, which is kept for the next range:
//!     └─ read_range() ──────────────────────────────────► BlockDownload ─► BlockConnection
//! ```

mod assembly;
mod download;
mod extents;
mod inflight;
mod selection;
pub(crate) mod transport;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetch::Network;
use fetch::engine::{ObjectRegions, RemoteBody, check_range, collect_chunks};
use fetch::retry::{AttemptError, with_time_limit};
use parking_lot::Mutex;
use stream::error::{SourceError, SourceErrorKind};
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};

pub(crate) use self::assembly::ReadAssembly;
use self::download::BlockDownload;
pub(crate) use self::download::MAX_REQUESTS;
pub use self::extents::BlockExtent;
pub(crate) use self::extents::BlockStatus;
pub use self::inflight::ReplyEvent;
pub(crate) use self::inflight::{InflightRequest, InflightTable, PendingReply};
use self::selection::DiskSelection;

/// Longest wait for a further connection, while the first one is idle.
const MORE_LIMIT: Duration = Duration::from_secs(20);

/// Describes bytes from a server that its protocol does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolViolation(pub String);

impl From<ProtocolViolation> for AttemptError {
    fn from(violation: ProtocolViolation) -> Self {
        let message = format!("the server violates the protocol: {}", violation.0);
        Self::Final(SourceError::new(SourceErrorKind::Invalid, message))
    }
}

/// A connection to an open disk. Requests are sent, and their replies arrive in any order.
///
/// A connection has one owner and no task of its own. A task that waits for a reply receives
/// everything that arrives before it.
pub trait BlockConnection: Sized + Send + 'static {
    /// Returns the unit of offsets and lengths of reads, a power of two.
    fn block_bytes(&self) -> u32;

    /// Returns the length of the longest read that the server allows on this connection.
    fn max_read_bytes(&self) -> u64 {
        u64::MAX
    }

    /// True if the server can tell zeros from data.
    fn has_allocation(&self) -> bool;

    /// Returns the requests whose events have not all been taken yet.
    fn inflight(&mut self) -> &mut InflightTable;

    /// Requests the bytes of `range`.
    fn request_read(
        &mut self,
        range: Range<u64>,
        limit: Duration,
    ) -> impl Future<Output = Result<(), AttemptError>> + Send;

    /// Requests the block status of `range`, which distinguishes its zeros from its data.
    fn request_block_status(
        &mut self,
        range: Range<u64>,
        limit: Duration,
    ) -> impl Future<Output = Result<(), AttemptError>> + Send;

    /// Receives the next piece of a reply.
    fn receive_next(&mut self) -> impl Future<Output = Result<(), AttemptError>> + Send;

    /// Ends the session. The server may be gone already, so failures are only logged.
    fn close(self, limit: Duration) -> impl Future<Output = ()> + Send;

    /// Returns the next event of the oldest request. Each wait for the server lasts at most
    /// `limit`.
    fn next_event(
        &mut self,
        limit: Duration,
    ) -> impl Future<Output = Result<ReplyEvent, AttemptError>> + Send {
        async move {
            loop {
                match self.inflight().take_ready_event()? {
                    Some(event) => return Ok(event),
                    None => with_time_limit(limit, self.receive_next()).await?,
                }
            }
        }
    }

    /// Waits for the replies to all requests, whatever they contain. The connection can then be
    /// used like a new one.
    fn drain_replies(
        &mut self,
        limit: Duration,
    ) -> impl Future<Output = Result<(), AttemptError>> + Send {
        async move {
            while !self.inflight().is_empty() {
                self.next_event(limit).await?;
            }
            Ok(())
        }
    }
}

/// Limits of what one connection requests before it has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Most reads.
    pub reads: usize,
    /// Bytes from which on nothing more is requested, because bytes that arrive out of order have
    /// to be kept.
    pub ahead_bytes: u64,
    /// Length of the longest read.
    pub read_bytes: u64,
}

/// A disk on a server, and new connections to it.
pub trait BlockServer: Send + Sync + 'static {
    /// The connections to the server.
    type Connection: BlockConnection;

    /// Names the kind of server in messages, such as `the NBD server`.
    const TITLE: &'static str;

    /// Returns the name of the disk.
    fn disk_name(&self) -> String;

    /// Returns the settings for reaching the server.
    fn network(&self) -> &Arc<Network>;

    /// Returns the size of the disk in bytes.
    fn disk_bytes(&self) -> u64;

    /// Returns the ranges of the disk that contain data, if they are known.
    fn data_ranges(&self) -> Option<&[Range<u64>]> {
        None
    }

    /// Returns over how many connections the whole disk is read, if the server allows so many.
    fn connection_count(&self) -> usize;

    /// Returns what one of `connections` may request, after `failures` of connections or reads
    /// that brought nothing.
    fn read_limits(&self, connections: usize, failures: u32) -> ReadLimits;

    /// Opens another connection to the same disk, in place of `broken`.
    fn reconnect(
        &self,
        broken: &mut Option<Self::Connection>,
        limit: Duration,
    ) -> impl Future<Output = Result<Self::Connection, AttemptError>> + Send;
}

/// A disk with its first connection open. All methods block, so they must not be called inside an
/// asynchronous task.
pub struct BlockSource<S: BlockServer> {
    server: Arc<S>,
    /// The first connection, over which the body is read.
    first: Mutex<Option<S::Connection>>,
    /// The connection for ranges, which are read one at a time.
    second: Mutex<Option<S::Connection>>,
}

/// A source of which a selection of ranges can be read in order.
pub(crate) trait RangedDisk: Source {
    /// Returns the body of an object that consists of `ranges` of the disk, one after the other.
    /// The ranges must be in order, within the disk and not empty. Used in place of
    /// [`Source::open_body`].
    fn ranges_body(&self, ranges: &Arc<[Range<u64>]>) -> Result<Box<dyn SourceBody>, SourceError>;
}

impl<S: BlockServer> BlockSource<S> {
    /// Creates the source from a server and the first connection to it.
    pub(crate) fn new(server: S, first: S::Connection) -> Self {
        let (first, second) = (Mutex::new(Some(first)), Mutex::new(None));
        Self { server: Arc::new(server), first, second }
    }

    /// Returns the body of `ranges`, which are read over the first connection and `more`.
    fn body_of(
        &self,
        ranges: Arc<[Range<u64>]>,
        regions: Option<ObjectRegions>,
        more: Vec<S::Connection>,
    ) -> Box<dyn SourceBody> {
        let (server, connections) = (Arc::clone(&self.server), more.len() + 1);
        let more = Mutex::new(more);
        let selection = DiskSelection { server, ranges, regions, connections, more };
        Box::new(RemoteBody::new(Arc::new(selection), self.first.lock().take(), true))
    }

    /// Opens as many further connections as the server wants and allows.
    async fn connect_more(&self) -> Result<Vec<S::Connection>, SourceError> {
        let mut more = Vec::new();
        let count = self.server.connection_count();
        for open in 1..count {
            let mut nothing = None;
            let connecting = self.server.reconnect(&mut nothing, MORE_LIMIT);
            let failure = match with_time_limit(MORE_LIMIT, connecting).await {
                Ok(connection) => {
                    more.push(connection);
                    continue;
                }
                Err(failure) => failure.into_error(),
            };
            if failure.kind() == SourceErrorKind::Changed {
                return Err(failure);
            }
            tracing::warn!("the disk is read over {open} of {count} connections: {failure}");
            break;
        }
        Ok(more)
    }

    async fn collect_range(
        &self,
        range: Range<u64>,
        connection: &mut Option<S::Connection>,
    ) -> Result<Bytes, SourceError> {
        let length = range.end - range.start;
        if length == 0 {
            return Ok(Bytes::new());
        }
        let (server, range) = (&*self.server, std::iter::once(range));
        let connections = server.connection_count();
        let mut download = BlockDownload::new(server, connections, range, connection.take(), false);
        let bytes = collect_chunks(length, async || download.next().await).await?;
        *connection = download.into_connection().await;
        Ok(bytes)
    }
}

impl<S: BlockServer> RangedDisk for BlockSource<S> {
    fn ranges_body(&self, ranges: &Arc<[Range<u64>]>) -> Result<Box<dyn SourceBody>, SourceError> {
        // One connection is enough: most ranges are small, and many requests are in flight on it.
        Ok(self.body_of(Arc::clone(ranges), None, Vec::new()))
    }
}

impl<S: BlockServer> Source for BlockSource<S> {
    fn name(&self) -> String {
        self.server.disk_name()
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.server.disk_bytes())
    }

    fn is_ranged(&self) -> bool {
        true
    }

    fn stated_disk(&self) -> Option<StatedDisk> {
        Some(StatedDisk::PLAIN)
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let more = self.server.network().block_on(self.connect_more())?;
        // Several connections get equal parts of the data, whatever lies between.
        let data = self.server.data_ranges().filter(|_| !more.is_empty());
        let regions = data.map(|data| ObjectRegions::new(data.iter().cloned()));
        let whole = std::iter::once(0..self.server.disk_bytes()).collect();
        Ok(self.body_of(whole, regions, more))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        check_range(&range, self.server.disk_bytes())?;
        let mut connection = self.second.lock();
        self.server.network().block_on(self.collect_range(range, &mut connection))
    }
}
