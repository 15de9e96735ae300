//! Ranges of the image that are still wanted and lie ahead, in image order.
//!
//! Each parsed table adds one sorted batch; a heap merges the batches. An uncompressed image costs
//! one entry per run of adjacent clusters, a compressed one 24 bytes per cluster. Batches are
//! freed as the stream passes them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::offsets::{Guest, Host};
use crate::{Error, Format};

/// The purpose of a wanted range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeRole {
    /// Guest data, stored uncompressed.
    Data,
    /// Uncompressed guest data in a unit to which nothing else refers, according to the image.
    SoleData,
    /// A part of the uncompressed guest data in a unit. The reference to the unit is counted with
    /// its last part, whose role is one of the roles above.
    PartOfData,
    /// One compressed cluster.
    Compressed,
    /// Allocated, but not read by the guest. Counted as a reference, so that the bytes are not
    /// kept.
    Ignored,
    /// A table. The number is the layout's kind of table.
    Table(u8),
}

impl RangeRole {
    /// Returns true for guest data that is stored uncompressed.
    pub(crate) fn is_data(self) -> bool {
        matches!(self, Self::Data | Self::SoleData | Self::PartOfData)
    }
}

/// A requested table that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct LoadedTable<'b> {
    /// The kind of table, a number that the layout assigns.
    pub kind: u8,
    /// Offset of the table in the image.
    pub host: Host,
    /// A number that the layout attached to its request, such as the index of the first entry.
    pub note: u64,
    /// The bytes of the table.
    pub bytes: &'b [u8],
}

/// A range of the image that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedRange {
    /// Offset of the first byte in the image.
    pub host: Host,
    /// Length in bytes. Runs of data are cut at `MAX_RUN`, 1 GiB.
    pub length: u32,
    /// The purpose of the bytes.
    pub role: RangeRole,
    /// For guest data, its offset on the disk. For a table, its [note](LoadedTable::note). Both
    /// share one field because a compressed image has a range for each cluster: an enum with data
    /// would take 32 bytes instead of 24.
    at: u64,
}

/// Longest run of data in one range, so that the length fits in 32 bits.
pub(crate) const MAX_RUN: u64 = 1 << 30;

impl WantedRange {
    /// Creates a range of guest data that is stored uncompressed.
    pub(crate) fn new_data(host: Host, length: u32, guest: Guest) -> Self {
        Self { host, length, role: RangeRole::Data, at: guest.0 }
    }

    /// Returns the offset after the last wanted byte.
    pub(crate) fn host_end(&self) -> Host {
        self.host.saturating_add(u64::from(self.length))
    }

    /// Returns the offset of the first byte on the disk. Valid only for guest data.
    pub(crate) fn guest_offset(&self) -> Guest {
        Guest(self.at)
    }

    /// Returns true if the range is a table.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.role, RangeRole::Table(_))
    }

    /// Returns the table, whose `bytes` have arrived. `None` if the range is not a table.
    pub(crate) fn loaded_table<'b>(&self, bytes: &'b [u8]) -> Option<LoadedTable<'b>> {
        let RangeRole::Table(kind) = self.role else {
            return None;
        };
        Some(LoadedTable { kind, host: self.host, note: self.at, bytes })
    }
}

/// Bytes of a large table that are requested together.
const PART_BYTES: usize = 1 << 20;

/// Number of values for which a list reserves memory the first time.
const FIRST_VALUES: usize = 4;

/// Collects the ranges that one table refers to, and merges neighbours.
#[derive(Debug)]
pub struct RangeBatch {
    wants: Vec<WantedRange>,
    /// Bytes of the image whose refcounts have just become known.
    pub(crate) counted: Range<Host>,
    /// Bytes of memory that the batch may still take.
    room: u64,
    exceeded: bool,
}

impl Default for RangeBatch {
    fn default() -> Self {
        Self::with_room(u64::MAX)
    }
}

impl RangeBatch {
    /// Creates a batch that takes at most `room` bytes of memory.
    pub(crate) fn with_room(room: u64) -> Self {
        Self { wants: Vec::new(), counted: Range::default(), room, exceeded: false }
    }

    /// Returns true if something did not fit into the memory limit. The batch is then incomplete.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.exceeded
    }

    /// Bytes of memory that the ranges use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        bytes_of::<WantedRange>(self.wants.capacity())
    }

    /// Charges `bytes` that a layout needs to remember something about the table itself. Returns
    /// false if the limit is exceeded; the layout must then not store it.
    pub(crate) fn charge_bytes(&mut self, bytes: u64) -> bool {
        match self.room.checked_sub(bytes) {
            Some(room) if !self.exceeded => {
                self.room = room;
                true
            }
            _ => {
                self.exceeded = true;
                false
            }
        }
    }

    /// Reserves memory for another range. Returns false if the limit is exceeded.
    fn reserve_one(&mut self) -> bool {
        let mut wants = std::mem::take(&mut self.wants);
        let granted = self.make_room(&mut wants);
        self.wants = wants;
        granted
    }

    /// Reserves memory for another value in a list that a layout keeps about its tables. The list
    /// grows to twice its size, or by as much as the limit allows. Returns false if the limit is
    /// exceeded.
    pub(crate) fn make_room<T>(&mut self, list: &mut Vec<T>) -> bool {
        if list.len() < list.capacity() {
            return true;
        }
        let left = usize::try_from(self.room / bytes_of::<T>(1)).unwrap_or(usize::MAX);
        let more = list.capacity().max(FIRST_VALUES).min(left).max(1);
        let granted = self.charge_bytes(bytes_of::<T>(more));
        if granted {
            // Reserve exactly what was charged: `push` would double the list, whatever the limit.
            list.reserve_exact(more);
        }
        granted
    }

    /// Removes all ranges.
    pub(crate) fn clear(&mut self) {
        self.wants.clear();
    }

    /// Returns true if two ranges are the same table. Sorts the ranges by position.
    pub(crate) fn has_doubled_tables(&mut self) -> bool {
        self.wants.sort_unstable();
        doubled_table(&self.wants).is_some()
    }

    /// Adds guest data of at most `MAX_RUN` bytes (1 GiB).
    pub fn push_data(&mut self, host: Host, length: u64, role: RangeRole, guest: Guest) {
        self.merge_or_push(host, length, role, guest.0);
    }

    /// Adds a range that is allocated but not read by the guest.
    pub(crate) fn push_ignored(&mut self, host: Host, length: u64) {
        self.merge_or_push(host, length, RangeRole::Ignored, 0);
    }

    /// Adds a table of the layout's `kind`. The loaded table carries the same `note`.
    pub(crate) fn push_table(&mut self, host: Host, length: u64, kind: u8, note: u64) {
        self.merge_or_push(host, length, RangeRole::Table(kind), note);
    }

    /// Adds a table of `length` bytes in parts, because it may be larger than the memory to spend
    /// on one table. The note of each part is the index of its first entry.
    pub fn push_table_parts(&mut self, host: Host, length: u64, kind: u8, entry_bytes: u64) {
        for skip in (0..length).step_by(PART_BYTES) {
            let part = (length - skip).min(PART_BYTES as u64);
            self.push_table(host + skip, part, kind, skip / entry_bytes);
        }
    }

    /// Puts back a range that was previously taken from a batch.
    pub(crate) fn push_again(&mut self, want: WantedRange) {
        self.merge_or_push(want.host, want.length.into(), want.role, want.at);
    }

    fn merge_or_push(&mut self, host: Host, length: u64, role: RangeRole, at: u64) {
        debug_assert!(length <= MAX_RUN, "{length} bytes at {host:#x}");
        let Ok(length) = u32::try_from(length) else { return };
        // Merge with the previous range if it is continued both in the image and on the disk. An
        // uncompressed image then needs one range per run instead of one per cluster.
        if let Some(last) = self.wants.last_mut()
            && (role.is_data() || role == RangeRole::Ignored)
            && last.role == role
            && last.host_end() == host
            && (role == RangeRole::Ignored || last.at.saturating_add(u64::from(last.length)) == at)
            && u64::from(last.length) + u64::from(length) <= MAX_RUN
        {
            last.length += length;
            return;
        }
        if self.reserve_one() {
            self.wants.push(WantedRange { host, length, role, at });
        }
    }

    /// Takes the ranges so far, in the order in which they were added. The remaining memory limit
    /// stays the same.
    pub(crate) fn take_wants(&mut self) -> Vec<WantedRange> {
        std::mem::take(&mut self.wants)
    }

    /// Returns the ranges in image order. Fails if two of them are the same table. No program
    /// writes such references, but a small file could use them to describe an arbitrarily large
    /// map that takes hours to read. QEMU does follow them.
    pub(crate) fn into_sorted(mut self, format: Format) -> Result<Vec<WantedRange>, Error> {
        self.take_sorted(format)
    }

    /// Like [`Self::into_sorted`], but takes only the ranges so far. The batch stays usable.
    pub(crate) fn take_sorted(&mut self, format: Format) -> Result<Vec<WantedRange>, Error> {
        let mut wants = self.take_wants();
        wants.sort_unstable();
        match doubled_table(&wants) {
            None => Ok(wants),
            Some(offset) => Err(format.entangled_error("two entries share a table", offset)),
        }
    }
}

/// Returns the offset of a table that occurs twice in the sorted ranges.
fn doubled_table(sorted: &[WantedRange]) -> Option<Host> {
    let is_doubled = |pair: &&[WantedRange]| {
        pair[0].host == pair[1].host && pair[0].role == pair[1].role && pair[0].is_table()
    };
    sorted.windows(2).find(is_doubled).map(|pair| pair[0].host)
}

/// Bytes of memory that `count` values of type `T` use.
pub(crate) fn bytes_of<T>(count: usize) -> u64 {
    (count as u64).saturating_mul(size_of::<T>() as u64)
}

/// A batch that is being read. Its `bytes` stay counted until the last range is taken.
#[derive(Default)]
struct BatchCursor {
    rest: std::vec::IntoIter<WantedRange>,
    bytes: u64,
}

/// Memory that a batch uses in addition to its ranges: its slots in the heap and in the list of
/// batches, and the overhead of the allocator.
const BATCH_BYTES: u64 = 96;

/// A queue that merges the sorted batches into image order.
#[derive(Default)]
pub(crate) struct WantedQueue {
    heap: BinaryHeap<Reverse<(WantedRange, usize)>>,
    batches: Vec<BatchCursor>,
    free: Vec<usize>,
    bytes: u64,
}

impl WantedQueue {
    /// Adds a batch of ranges that are sorted by position.
    pub(crate) fn add_sorted(&mut self, mut sorted: Vec<WantedRange>) {
        // A batch may be kept until the end of the image, so free the spare capacity of its list,
        // which doubles when it grows.
        sorted.shrink_to_fit();
        let bytes = bytes_of::<WantedRange>(sorted.len());
        let mut rest = sorted.into_iter();
        let Some(first) = rest.next() else { return };
        self.bytes += bytes;
        let cursor = BatchCursor { rest, bytes };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.batches[slot] = cursor;
                slot
            }
            None => {
                self.batches.push(cursor);
                self.batches.len() - 1
            }
        };
        self.heap.push(Reverse((first, slot)));
    }

    /// Bytes of memory that all ranges use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // The slots of finished batches stay allocated.
        self.bytes + self.batches.len() as u64 * BATCH_BYTES
    }

    /// Returns the offset of the next wanted byte.
    pub(crate) fn next_host(&self) -> Option<Host> {
        self.heap.peek().map(|Reverse((want, _))| want.host)
    }

    /// Takes the next range, if it begins at or before `position`.
    pub(crate) fn pop_until(&mut self, position: Host) -> Option<WantedRange> {
        if self.next_host()? > position {
            return None;
        }
        let Reverse((want, slot)) = self.heap.pop()?;
        match self.batches[slot].rest.next() {
            Some(next) => self.heap.push(Reverse((next, slot))),
            None => {
                self.bytes -= self.batches[slot].bytes;
                self.batches[slot] = BatchCursor::default();
                self.free.push(slot);
            }
        }
        Some(want)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_data_is_joined_to_one_run() {
        let mut batch = RangeBatch::default();
        batch.push_data(Host(0x1000), 0x1000, RangeRole::Data, Guest(0));
        batch.push_data(Host(0x2000), 0x1000, RangeRole::Data, Guest(0x1000));
        batch.push_data(Host(0x9000), 0x1000, RangeRole::Data, Guest(0x2000));
        let wants = batch.into_sorted(Format::Qcow2).unwrap();
        assert_eq!(wants.len(), 2);
        assert_eq!(wants[0].length, 0x2000);
    }

    #[test]
    fn batches_are_returned_in_the_order_of_the_image() {
        let mut wants = WantedQueue::default();
        let want = |host| WantedRange::new_data(Host(host), 512, Guest(0));
        wants.add_sorted(vec![want(1024), want(4096)]);
        wants.add_sorted(vec![want(512), want(2048)]);
        let mut order = Vec::new();
        while let Some(want) = wants.pop_until(Host(u64::MAX)) {
            order.push(want.host.0);
        }
        assert_eq!(order, [512, 1024, 2048, 4096]);
        assert_eq!(wants.bytes, 0);
    }

    #[test]
    fn a_batch_stays_within_its_memory() {
        for room in [0, 24, 100, 24 * 4, 24 * 100, 10_000] {
            let mut batch = RangeBatch::with_room(room);
            let mut pushed = 0;
            while !batch.is_exceeded() {
                batch.push_data(Host(pushed * 1024), 512, RangeRole::Data, Guest(0));
                pushed += 1;
            }
            assert!(batch.memory_bytes() <= room, "{room}: {}", batch.memory_bytes());
            assert_eq!(pushed - 1, room / 24, "all of the memory is used");
        }
    }

    #[test]
    fn memory_of_a_layout_is_charged_to_the_batch() {
        let mut batch = RangeBatch::with_room(100);
        assert!(batch.charge_bytes(60) && !batch.charge_bytes(60) && batch.is_exceeded());
        assert!(!batch.charge_bytes(1), "nothing can be charged after that");
    }
}
