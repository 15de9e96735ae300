//! From tables to wants: what L1 and L2 tables say about the bytes of the image.

use super::header::Header;
use super::table::{L2, Mapping, bit_runs, l1_entry, l2_entry};
use crate::Error;
use crate::wants::{Batch, Role, Table};

/// Asks for the L2 tables that an L1 table refers to; each remembers the first guest byte that it maps.
pub(super) fn l2_tables(header: &Header, l1: &[u8], tables: &mut Batch) -> Result<(), Error> {
    let entries = usize::try_from(header.l1_entries).unwrap_or(usize::MAX);
    for index in 0..entries.min(l1.len() / 8) {
        if let Some(offset) = l1_entry(header, l1, index)? {
            let guest = index as u64 * header.bytes_per_l2();
            tables.push(offset, header.cluster_size(), Role::Table(L2), guest);
        }
    }
    Ok(())
}

/// Asks for what one L2 table maps. Clipped to the virtual size.
pub(super) fn l2_wants(header: &Header, table: Table, bytes: &[u8], batch: &mut Batch) -> Result<(), Error> {
    let cluster = header.cluster_size();
    let subcluster = if header.extended_l2 { cluster / 32 } else { cluster };
    let entries = usize::try_from(cluster / header.l2_entry_bytes()).unwrap_or(0);
    for index in 0..entries {
        let guest = table.at + index as u64 * cluster;
        if guest >= header.virtual_size {
            break;
        }
        let left = header.virtual_size - guest;
        match l2_entry(header, bytes, index, table.host)? {
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
    Ok(())
}
