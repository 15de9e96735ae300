//! The download engine: tasks read bytes from the network and pass them to the blocking threads of
//! the data path.
//!
//! ```text
//!  one connection after the other:
//!  read_ranges ─► bridge ─► RemoteBody
//!
//!  several connections at once, each of which reads a segment:
//!  read_ranges ─► bridge ─┐
//!  read_ranges ─► bridge ─┴─ in turns ─► bridge ─► RemoteBody
//! ```
//!
//! If nobody fixed the number of connections, `SegmentCrew` finds it while it reads.
//!
//! Each kind of source implements [`RemoteObject`], which reads ranges over one connection and
//! handles retries. Everything above that is shared.

mod body;
mod crew;
mod growth;
mod pump;
mod regions;
mod segment;

use std::iter;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use stream::bridge::{self, CopyingSender};
use stream::buffer::CHUNK_BYTES;
use stream::error::SourceError;
use stream::zeros::ZEROS;

pub use self::body::RemoteBody;
use self::crew::{SegmentCrew, early_end_error};
use self::growth::ConnectionGrowth;
use self::pump::BridgePump;
use self::regions::ObjectPieces;
pub use self::regions::ObjectRegions;
use self::segment::ConnectionGauge;
use crate::error::{invalid_error, stopped_error};
use crate::network::Network;

/// Longest segment that one of several connections reads. From this size on, the round trip of a
/// request is negligible.
const MAX_SEGMENT_BYTES: u64 = 4 << 20;

/// Memory that is reserved at once for a range. More is allocated only as bytes arrive.
const RESERVED_BYTES: u64 = 1 << 20;

/// End of a range that extends to the end of its object.
pub const TO_THE_END: u64 = u64::MAX;

/// An object on a server that can be read over one or several connections.
pub trait RemoteObject: Send + Sync + 'static {
    /// A connection that is already open.
    type Connection: Send + 'static;

    /// Limit of the bytes that wait to be handed over in order, for all connections together.
    const AHEAD_BYTES: u64;

    /// Bytes of a response that its network library holds before this module sees them.
    const LIBRARY_BYTES: u64;

    /// Returns the settings for reaching the server.
    fn network(&self) -> &Network;

    /// Returns the length of the object in bytes, if it is known.
    fn object_len(&self) -> Option<u64>;

    /// Returns how many connections read the body in parallel, if the server supports ranges. With
    /// `RemoteBody::with_growth`, it begins with so many.
    fn connection_count(&self) -> usize;

    /// Returns the ranges in which the object contains data, if they are known before it is read.
    fn data_regions(&self) -> Option<&ObjectRegions> {
        None
    }

    /// Reads `ranges` one after the other and sends their bytes to `outlet` until it closes. The
    /// last range may extend [`TO_THE_END`]. `first`, if given, is a connection that is already
    /// open at the beginning of the object.
    fn read_ranges(
        &self,
        ranges: impl Iterator<Item = Range<u64>> + Send,
        first: Option<Self::Connection>,
        outlet: ConnectionOutlet,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;
}

/// The sending end for the bytes of one connection.
#[derive(Clone)]
pub struct ConnectionOutlet {
    sender: bridge::BridgeSender,
    /// True if bytes are passed on at once. Bytes that wait for their turn are copied first,
    /// because many small chunks would hold as much memory as large ones.
    pub(crate) is_prompt: bool,
    /// Present if the number of connections is found while they read.
    gauge: Option<Arc<ConnectionGauge>>,
}

impl ConnectionOutlet {
    /// Sends `chunk`, which occupies `held` bytes of memory.
    pub async fn send_chunk(&self, chunk: Bytes, held: usize) -> Result<(), SourceError> {
        self.sender.send(chunk, held).await.map_err(|_| stopped_error())
    }

    /// Completes when no more bytes are wanted.
    pub(crate) async fn wait_for_close(&self) {
        self.sender.closed().await;
    }

    /// Returns a sender that packs small pieces, which may lie anywhere in memory, into chunks.
    /// The first byte is at `offset` of the object.
    pub(crate) fn copying_sender(&self, offset: u64) -> CopyingSender {
        CopyingSender::new(self.sender.clone(), offset)
    }

    /// Returns where a connection has to stop that was asked for the bytes up to `end`. Others may
    /// take over its last bytes at any time.
    pub(crate) fn end_before(&self, end: u64) -> u64 {
        self.gauge.as_ref().map_or(end, |gauge| end.min(gauge.limit()))
    }

    /// Records that the next `bytes` have arrived. Returns how many of them have to be sent.
    pub(crate) fn accept(&self, bytes: usize) -> usize {
        self.gauge.as_ref().map_or(bytes, |gauge| gauge.accept(bytes))
    }

    /// True if the transfer can do without this connection. Then the first failure of a request is
    /// returned at once instead of being retried.
    pub(crate) fn is_additional(&self) -> bool {
        self.gauge.as_ref().is_some_and(|gauge| gauge.is_additional)
    }

    async fn send_zeros(&self, mut length: u64) -> Result<(), SourceError> {
        while length > 0 {
            let step =
                usize::try_from(length).map_or(ZEROS.len(), |length| length.min(ZEROS.len()));
            self.send_chunk(Bytes::from_static(&ZEROS[..step]), 0).await?;
            length -= step as u64;
        }
        Ok(())
    }
}

/// Reads `remote` from `position` to its end. With `growth`, the number of connections adapts.
async fn read_all<R: RemoteObject>(
    remote: Arc<R>,
    position: u64,
    first: Option<R::Connection>,
    is_ranged: bool,
    growth: Option<Arc<Mutex<ConnectionGrowth>>>,
    sender: bridge::BridgeSender,
) -> Result<(), SourceError> {
    if let (Some(growth), Some(end)) = (growth, remote.object_len()) {
        return SegmentCrew::new(remote, position..end, sender, growth).read_all(first).await;
    }
    remote.network().observer.record_connections(remote.connection_count(), "fixed");
    let outlet = ConnectionOutlet { sender, is_prompt: true, gauge: None };
    let regions = remote.data_regions().filter(|_| is_ranged);
    match remote.object_len().filter(|_| is_ranged) {
        Some(end) if remote.connection_count() > 1 => {
            let segment_bytes = bytes_of_lane(&*remote);
            let pieces = ObjectPieces::new(regions, position..end, segment_bytes);
            read_in_turns(&remote, pieces, first, &outlet).await
        }
        Some(end) if regions.is_some() => {
            // Regions are not cut into segments: with one connection, segments would only cost
            // more requests.
            let pieces = ObjectPieces::new(regions, position..end, u64::MAX);
            read_in_line(&*remote, pieces, first, outlet).await
        }
        _ => remote.read_ranges(iter::once(position..TO_THE_END), first, outlet).await,
    }
}

/// Returns how many bytes each of several connections may read ahead. Besides, it holds the last
/// chunk of the segment before, and one that is being filled.
fn bytes_of_lane<R: RemoteObject>(remote: &R) -> u64 {
    let share = R::AHEAD_BYTES / u64::try_from(remote.connection_count()).unwrap_or(u64::MAX);
    share.saturating_sub(2 * CHUNK_BYTES as u64).clamp(CHUNK_BYTES as u64, MAX_SEGMENT_BYTES)
}

/// Reads over one connection at a time. The zeros of holes are generated here, not requested.
async fn read_in_line<R: RemoteObject>(
    remote: &R,
    pieces: ObjectPieces,
    mut first: Option<R::Connection>,
    outlet: ConnectionOutlet,
) -> Result<(), SourceError> {
    let Range { start: mut position, end } = pieces.left();
    for range in pieces {
        outlet.send_zeros(range.start - position).await?;
        position = range.end;
        remote.read_ranges(iter::once(range), first.take(), outlet.clone()).await?;
    }
    outlet.send_zeros(end - position).await
}

/// Reads over several connections in parallel, for servers and networks that limit the throughput
/// of each connection. Each of the n connections reads every nth segment; while one hands over its
/// bytes, the others read ahead.
///
/// Where each connection is limited to 50 MB/s, four are 2.6 times as fast as one.
async fn read_in_turns<R: RemoteObject>(
    remote: &Arc<R>,
    pieces: ObjectPieces,
    mut first: Option<R::Connection>,
    outlet: &ConnectionOutlet,
) -> Result<(), SourceError> {
    let count = remote.connection_count();
    // A connection requests its next segment when the bridge has taken the last byte of the one
    // before. Together with the bytes that the library holds, that is one segment in memory.
    let budget = bytes_of_lane(&**remote).saturating_sub(R::LIBRARY_BYTES);
    let budget = usize::try_from(budget).unwrap_or(usize::MAX).max(CHUNK_BYTES);
    let mut lanes: Vec<BridgePump> = (0..count)
        .map(|lane| {
            // Segments are assigned beforehand: bytes are handed over in order, so a faster
            // connection that took more segments would only have to wait.
            let ranges = pieces.clone().skip(lane).step_by(count);
            let (reader, first) = (Arc::clone(remote), first.take());
            BridgePump::start(remote.network(), budget, |sender| async move {
                let outlet = ConnectionOutlet { sender, is_prompt: false, gauge: None };
                reader.read_ranges(ranges, first, outlet).await
            })
        })
        .collect();
    let mut closed = pin!(outlet.wait_for_close());
    let Range { start: mut position, end } = pieces.left();
    for (turn, range) in pieces.enumerate() {
        outlet.send_zeros(range.start - position).await?;
        position = range.end;
        let Some(lane) = lanes.get_mut(turn % count) else {
            break;
        };
        let mut left = range.end - range.start;
        while left > 0 {
            // Without polling the outlet, the connections would keep reading until the slowest one
            // had delivered its chunk.
            let next = tokio::select! {
                biased;
                next = lane.chunks.recv_held() => next,
                () = closed.as_mut() => return Err(stopped_error()),
            };
            let Some(chunk) = next else {
                lane.join_task().await?;
                return Err(early_end_error());
            };
            left = left.saturating_sub(chunk.bytes.len() as u64);
            outlet.send_chunk(chunk.bytes, chunk.held).await?;
        }
    }
    outlet.send_zeros(end - position).await
}

/// Returns an error unless `range` lies within `length` bytes.
pub fn check_range(range: &Range<u64>, length: u64) -> Result<(), SourceError> {
    if range.start <= range.end && range.end <= length {
        return Ok(());
    }
    let message = format!("bytes {} to {} are not within {length} bytes", range.start, range.end);
    Err(invalid_error(message))
}

/// Joins all chunks that `next` returns; their total length is `length` bytes.
pub async fn collect_chunks(
    length: u64,
    mut next: impl AsyncFnMut() -> Result<Option<Bytes>, SourceError>,
) -> Result<Bytes, SourceError> {
    let Some(first) = next().await? else {
        return Ok(Bytes::new());
    };
    if first.len() as u64 == length {
        return Ok(first);
    }
    let mut bytes =
        BytesMut::with_capacity(usize::try_from(length.min(RESERVED_BYTES)).unwrap_or(0));
    bytes.extend_from_slice(&first);
    while let Some(chunk) = next().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}
