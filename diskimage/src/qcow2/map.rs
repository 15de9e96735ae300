//! From tables to wants: what L1 and L2 tables say about the bytes of the image.

use bytes::Bytes;

use super::MAP_BYTES;
use super::header::Header;
use super::stream::Stream;
use super::table::{Mapping, bit_runs, l1_entry, l2_entry};
use super::wants::{Batch, Role, Want, Wants};
use super::zeros::Zeros;
use crate::Error;

/// An L2 table that an L1 table refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct L2Table {
    /// Where the table (one cluster) is in the image.
    pub offset: u64,
    /// The first guest byte that it maps.
    pub guest: u64,
}

/// The L2 tables that an L1 table refers to, in the order of the image.
pub(super) fn l2_tables(header: &Header, l1: &[u8]) -> Result<Vec<L2Table>, Error> {
    let mut tables = Vec::new();
    let entries = usize::try_from(header.l1_entries).unwrap_or(usize::MAX);
    for index in 0..entries.min(l1.len() / 8) {
        if let Some(offset) = l1_entry(header, l1, index)? {
            tables.push(L2Table {
                offset,
                guest: index as u64 * header.bytes_per_l2(),
            });
        }
    }
    tables.sort_unstable();
    // Nothing writes this, and it would let a small file describe an arbitrarily large map.
    if let Some(pair) = tables.windows(2).find(|pair| pair[0].offset == pair[1].offset) {
        return Err(Error::Corrupt {
            what: "two L1 entries share an L2 table".into(),
            offset: pair[0].offset,
        });
    }
    Ok(tables)
}

/// What one L2 table maps, in the order of the image. Clipped to the virtual size.
pub(super) fn l2_wants(header: &Header, table: L2Table, bytes: &[u8]) -> Result<Vec<Want>, Error> {
    let cluster = header.cluster_size();
    let subcluster = if header.extended_l2 { cluster / 32 } else { cluster };
    let entries = usize::try_from(cluster / header.l2_entry_bytes()).unwrap_or(0);
    let mut batch = Batch::default();
    for index in 0..entries {
        let guest = table.guest + index as u64 * cluster;
        if guest >= header.virtual_size {
            break;
        }
        let left = header.virtual_size - guest;
        match l2_entry(header, bytes, index, table.offset)? {
            Mapping::Unmapped => {}
            Mapping::ZeroAllocated { host } => batch.push(host, cluster, Role::Ignored, 0),
            Mapping::Compressed { host, length } => batch.push(host, length, Role::Compressed, guest),
            Mapping::Data { host, .. } if !header.extended_l2 => {
                batch.push(host, cluster.min(left), Role::Data, guest);
            }
            Mapping::Data { host, subclusters } => {
                for (first, count) in bit_runs(subclusters) {
                    let skip = u64::from(first) * subcluster;
                    let length = (u64::from(count) * subcluster).min(left.saturating_sub(skip));
                    if length > 0 {
                        batch.push(host + skip, length, Role::Data, guest + skip);
                    }
                }
            }
        }
    }
    Ok(batch.sorted())
}

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
