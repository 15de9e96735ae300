//! A map from tables that are read before anything else.

use bytes::Bytes;

use super::MAP_BYTES;
use super::header::Header;
use super::map::{l2_tables, l2_wants};
use super::stream::Stream;
use super::table::L2Table;
use super::wants::{Role, Wants};
use super::zeros::Zeros;
use crate::Error;

/// Builds a complete map from tables that were fetched ahead of the data.
pub struct MapBuilder {
    header: Header,
    image_length: u64,
    wants: Wants,
    zeros: Zeros,
    mapped_bytes: u64,
}

impl MapBuilder {
    /// A map for the image of `image_length` bytes that begins with `header`.
    pub fn new(header: Header, image_length: u64) -> Self {
        Self {
            header,
            image_length,
            wants: Wants::new(MAP_BYTES),
            zeros: Zeros::default(),
            mapped_bytes: 0,
        }
    }

    /// The range of the image that holds the L1 table; empty for an empty disk.
    pub fn l1_range(&self) -> Result<std::ops::Range<u64>, Error> {
        let start = self.header.l1_offset;
        let end = start + self.header.l1_entries * 8;
        self.check_inside("the L1 table", start, end)?;
        Ok(start..end)
    }

    /// The L2 tables to fetch, in the order of the image.
    pub fn l2_tables(&self, l1: &[u8]) -> Result<Vec<L2Table>, Error> {
        let tables = l2_tables(&self.header, l1)?;
        for table in &tables {
            self.check_inside(
                "an L2 table",
                table.offset,
                table.offset.saturating_add(self.header.cluster_size()),
            )?;
        }
        Ok(tables)
    }

    /// Adds what one L2 table maps.
    pub fn add_l2(&mut self, table: L2Table, bytes: &Bytes) -> Result<(), Error> {
        let mut wants = l2_wants(&self.header, table, bytes)?;
        if self.header.is_delta {
            self.zeros.learn(&self.header, table, bytes)?;
        }
        wants.retain(|want| want.role != Role::Ignored);
        for want in &wants {
            // The last sector of a compressed cluster may be cut off: its length is rounded up.
            let end = if want.role == Role::Compressed {
                want.host.saturating_add(1)
            } else {
                want.end()
            };
            self.check_inside("a data cluster", want.host, end)?;
            self.mapped_bytes += u64::from(want.length);
        }
        self.wants.add(wants)
    }

    /// Bytes of the image that hold guest data.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes
    }

    /// The stream that needs no parking.
    pub fn into_stream(self) -> Stream {
        Stream::mapped(self.header, self.wants, self.zeros)
    }

    fn check_inside(&self, what: &'static str, offset: u64, end: u64) -> Result<(), Error> {
        if end > self.image_length {
            return Err(Error::Truncated {
                what,
                offset,
                end: self.image_length,
            });
        }
        Ok(())
    }
}
