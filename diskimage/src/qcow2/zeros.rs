//! What a delta says about zeros: a cluster that reads as zeros hides what the base has there, a cluster that is not
//! mapped does not.

use std::ops::Range;

use super::header::Header;
use super::table::{SUBCLUSTERS, bit_runs, zero_subclusters};
use crate::wants::Table;
use crate::{Error, MAP_BYTES};

/// The guest ranges that a delta makes zero.
#[derive(Debug, Default)]
pub(super) struct Zeros {
    ranges: Vec<Range<u64>>,
}

impl Zeros {
    /// Learns what an L2 table says. Clipped to the virtual size.
    pub(super) fn learn(&mut self, header: &Header, table: Table, bytes: &[u8]) -> Result<(), Error> {
        let cluster = header.cluster_size();
        let subcluster = cluster / u64::from(SUBCLUSTERS);
        let entries = usize::try_from(cluster / header.l2_entry_bytes()).unwrap_or(0);
        for index in 0..entries {
            let guest = table.at + index as u64 * cluster;
            if guest >= header.virtual_size {
                break;
            }
            match zero_subclusters(header, bytes, index) {
                0 => {}
                u32::MAX => self.add(header, guest..guest + cluster)?,
                bits => {
                    for (first, count) in bit_runs(bits) {
                        let start = guest + u64::from(first) * subcluster;
                        self.add(header, start..start + u64::from(count) * subcluster)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, header: &Header, range: Range<u64>) -> Result<(), Error> {
        let range = range.start..range.end.min(header.virtual_size);
        if range.is_empty() {
            return Ok(());
        }
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range),
        }
        let bytes = (self.ranges.len() * size_of::<Range<u64>>()) as u64;
        if bytes > MAP_BYTES {
            return Err(Error::MapTooLarge { limit: MAP_BYTES });
        }
        Ok(())
    }

    /// The ranges, in the order in which they were found.
    pub(super) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }
}
