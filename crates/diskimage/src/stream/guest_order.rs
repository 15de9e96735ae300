//! The data of an image in the order of the guest's disk, for a caller that reads the image at any
//! offset.

use bytes::Bytes;

use super::ImageStream;
use crate::Error;
use crate::layout::ImageLayout;
use crate::memory::MemoryAccount;
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{RangeRole, WantedQueue, WantedRange, bytes_of};

/// Guest data, and where the image stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestRange {
    /// Offset on the guest's disk.
    pub guest: Guest,
    /// Offset in the image.
    pub host: Host,
    /// Bytes in the image. For a compressed cluster the length may be rounded up, even beyond the
    /// end of the image.
    pub stored_bytes: u64,
    /// True if the range is one compressed cluster.
    pub is_compressed: bool,
}

/// A complete map, sorted by the offsets on the guest's disk.
pub struct GuestOrderMap {
    layout: Box<dyn ImageLayout>,
    ranges: Vec<WantedRange>,
    /// Holds the memory of `ranges` until they are dropped.
    _account: MemoryAccount,
}

impl ImageStream {
    /// Returns the map in the order of the guest's disk. The stream must come from a
    /// [`MapBuilder`](crate::MapBuilder), and nothing may have been pushed yet.
    pub fn into_guest_order(mut self) -> Result<GuestOrderMap, Error> {
        // A batch of the queue is freed only when its last range is taken, so the queue and the
        // sorted list exist at the same time.
        let most = self.wants.memory_bytes() / bytes_of::<WantedRange>(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.hold_bytes(bytes_of::<WantedRange>(most))?;
        let mut ranges = Vec::with_capacity(most);
        while let Some(want) = self.wants.pop_until(Host(u64::MAX)) {
            if want.role.is_data() || want.role == RangeRole::Compressed {
                ranges.push(want);
            }
        }
        ranges.shrink_to_fit();
        // The queue is empty, so only the sorted list needs memory from now on.
        self.wants = WantedQueue::default();
        self.hold_bytes(bytes_of::<WantedRange>(ranges.capacity()))?;
        ranges.sort_unstable_by_key(WantedRange::guest_offset);
        Ok(GuestOrderMap { layout: self.layout, ranges, _account: self.account })
    }
}

impl GuestOrderMap {
    /// Returns all guest data. Everything between two ranges reads as zeros.
    pub fn guest_ranges(&self) -> impl Iterator<Item = GuestRange> {
        self.ranges.iter().map(|want| GuestRange {
            guest: want.guest_offset(),
            host: want.host,
            stored_bytes: want.length.into(),
            is_compressed: want.role == RangeRole::Compressed,
        })
    }

    /// Returns the codec's bytes within `stored`, the bytes that the image stores for the
    /// compressed cluster at `guest`.
    pub fn compressed_payload(&self, guest: Guest, stored: Bytes) -> Result<Bytes, Error> {
        self.layout.compressed_payload(guest, stored)
    }
}
