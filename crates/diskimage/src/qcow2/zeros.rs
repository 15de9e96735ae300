//! The zeros of a delta. A cluster that reads as zeros hides the data of the base image, but an
//! unmapped cluster does not.

use std::ops::Range;

use super::header::Qcow2Header;
use super::map::mapped_clusters;
use super::table::{SUBCLUSTERS, bit_runs, zero_subclusters};
use crate::offsets::Guest;
use crate::wanted_ranges::{LoadedTable, RangeBatch, bytes_of};

/// The guest ranges that a delta turns into zeros.
#[derive(Debug, Default)]
pub(super) struct ZeroRanges {
    ranges: Vec<Range<Guest>>,
}

impl ZeroRanges {
    /// Adds the zeros of an L2 table, clipped to the virtual size. The memory for them is charged
    /// to `batch`.
    pub(super) fn add_table(
        &mut self,
        header: &Qcow2Header,
        table: LoadedTable<'_>,
        batch: &mut RangeBatch,
    ) {
        let subcluster = header.cluster_size() / u64::from(SUBCLUSTERS);
        for (index, guest) in mapped_clusters(header, table) {
            for (first, count) in bit_runs(zero_subclusters(header, table.bytes, index)) {
                let start = guest + u64::from(first) * subcluster;
                self.add_range(header, start..start + u64::from(count) * subcluster, batch);
            }
        }
    }

    fn add_range(&mut self, header: &Qcow2Header, range: Range<Guest>, batch: &mut RangeBatch) {
        let range = range.start..range.end.min(Guest(header.virtual_size));
        if range.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            // Each range is charged twice, because a list doubles in size when it grows.
            _ if batch.charge_bytes(2 * bytes_of::<Range<Guest>>(1)) => self.ranges.push(range),
            _ => {}
        }
    }

    /// Bytes of memory that the ranges take.
    pub(super) fn memory_bytes(&self) -> u64 {
        bytes_of::<Range<Guest>>(self.ranges.capacity())
    }

    /// Returns the ranges in the order in which they were found.
    pub(super) fn ranges(&self) -> &[Range<Guest>] {
        &self.ranges
    }
}
