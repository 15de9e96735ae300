//! Presents some ranges of a disk, one after the other, as one object.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use fetch::Network;
use fetch::engine::{ConnectionOutlet, ObjectRegions, RemoteObject};
use fetch::error::stopped_error;
use parking_lot::Mutex;
use stream::buffer::CHUNK_BYTES;
use stream::error::SourceError;
use stream::zeros::is_known_zero;

use super::download::BlockDownload;
use super::{BlockConnection, BlockServer};

/// Longest wait for a server to accept the disconnect request.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// Ranges of a disk. Byte 0 of the object is the first byte of the first range.
pub(super) struct DiskSelection<S: BlockServer> {
    pub(super) server: Arc<S>,
    /// The ranges, in order and not empty. An empty disk has one empty range.
    pub(super) ranges: Arc<[Range<u64>]>,
    /// The parts of the object with data, if it is read over several connections.
    pub(super) regions: Option<ObjectRegions>,
    /// Number of connections over which they are read.
    pub(super) connections: usize,
    /// Connections that are open already, without the first one.
    pub(super) more: Mutex<Vec<S::Connection>>,
}

impl<S: BlockServer> RemoteObject for DiskSelection<S> {
    type Connection = S::Connection;

    const AHEAD_BYTES: u64 = 8 << 20;
    const LIBRARY_BYTES: u64 = 0;

    fn network(&self) -> &Network {
        self.server.network()
    }

    fn object_len(&self) -> Option<u64> {
        Some(self.ranges.iter().map(|range| range.end - range.start).sum())
    }

    fn connection_count(&self) -> usize {
        self.connections
    }

    fn data_regions(&self) -> Option<&ObjectRegions> {
        self.regions.as_ref()
    }

    async fn read_ranges(
        &self,
        ranges: impl Iterator<Item = Range<u64>> + Send,
        first: Option<S::Connection>,
        outlet: ConnectionOutlet,
    ) -> Result<(), SourceError> {
        let ranges = ranges.flat_map(|wanted| locate_ranges(&self.ranges, wanted));
        let open = first.or_else(|| self.more.lock().pop());
        let mut download = BlockDownload::new(&*self.server, self.connections, ranges, open, true);
        let mut is_wanted = true;
        while is_wanted && let Some(bytes) = download.next().await? {
            let held = if is_known_zero(&bytes) { 0 } else { CHUNK_BYTES };
            is_wanted = outlet.send_chunk(bytes, held).await.is_ok();
        }
        // Outstanding replies are received and the connection is closed properly, because not all
        // servers cope with clients that disconnect in the middle.
        if let Some(connection) = download.into_connection().await {
            connection.close(CLOSE_LIMIT).await;
        }
        if is_wanted { Ok(()) } else { Err(stopped_error()) }
    }
}

/// Returns where the bytes `wanted` of the object lie on the disk. The object consists of
/// `ranges`, one after the other.
fn locate_ranges(ranges: &[Range<u64>], wanted: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut start = 0u64;
    ranges.iter().filter_map(move |range| {
        let length = range.end - range.start;
        let (from, to) = (wanted.start.max(start), wanted.end.min(start + length));
        let place = (from < to).then(|| range.start + (from - start)..range.start + (to - start));
        start += length;
        place
    })
}

#[cfg(test)]
mod tests {
    use fetch::engine::TO_THE_END;

    use super::*;

    #[test]
    fn a_part_of_the_stream_is_located_on_the_disk() {
        let ranges = [10..20, 30..31, 40..60];
        for (wanted, expected) in [
            (0..TO_THE_END, vec![10..20, 30..31, 40..60]),
            (9..11, vec![19..20, 30..31]),
            (5..12, vec![15..20, 30..31, 40..41]),
            (31..TO_THE_END, vec![]),
        ] {
            assert_eq!(locate_ranges(&ranges, wanted).collect::<Vec<_>>(), expected);
        }
    }
}
