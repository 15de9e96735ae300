//! The zeros of a delta: a cluster that reads as zeros hides what the base has there, a cluster that is not mapped does not.

use std::ops::Range;

use super::header::Header;
use super::map::mapped_clusters;
use super::table::{SUBCLUSTERS, bit_runs, zero_subclusters};
use crate::offsets::Guest;
use crate::wants::{Batch, Table, bytes_of};

/// The guest ranges that a delta makes zero.
#[derive(Debug, Default)]
pub(super) struct Zeros {
    ranges: Vec<Range<Guest>>,
}

impl Zeros {
    /// Learns the zeros of an L2 table. Clipped to the virtual size; the memory for them is charged to `batch`.
    pub(super) fn learn(&mut self, header: &Header, table: Table<'_>, batch: &mut Batch) {
        let subcluster = header.cluster_size() / u64::from(SUBCLUSTERS);
        for (index, guest) in mapped_clusters(header, table) {
            for (first, count) in bit_runs(zero_subclusters(header, table.bytes, index)) {
                let start = guest + u64::from(first) * subcluster;
                self.add(header, start..start + u64::from(count) * subcluster, batch);
            }
        }
    }

    fn add(&mut self, header: &Header, range: Range<Guest>, batch: &mut Batch) {
        let range = range.start..range.end.min(Guest(header.virtual_size));
        if range.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            // Charged twice: the list grows to twice its length at once.
            _ if batch.charge(2 * bytes_of::<Range<Guest>>(1)) => self.ranges.push(range),
            _ => {}
        }
    }

    /// Bytes of memory that the ranges take.
    pub(super) fn bytes(&self) -> u64 {
        bytes_of::<Range<Guest>>(self.ranges.capacity())
    }

    /// The ranges, in the order in which they were found.
    pub(super) fn ranges(&self) -> &[Range<Guest>] {
        &self.ranges
    }
}
