//! Turns tables into wanted ranges: the parts of the image that L1 and L2 tables refer to.

use super::header::Qcow2Header;
use super::table::{
    ClusterMapping, L2, OFFSET_MASK, SUBCLUSTERS, bit_runs, l2_entry, table_entries,
};
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch, RangeRole};
use crate::{Error, Format};

/// Requests the L2 tables that an L1 table refers to. The `LoadedTable::note` of each L2 table is
/// the first guest byte that it maps.
pub(super) fn l2_tables(
    header: &Qcow2Header,
    l1: &[u8],
    tables: &mut RangeBatch,
) -> Result<(), Error> {
    for (index, entry) in (0..header.l1_entries).zip(table_entries(l1)) {
        let host = Host(entry & OFFSET_MASK);
        if !host.is_multiple_of(header.cluster_size()) {
            let what = format!("L1 entry {index} points to an unaligned L2 table");
            return Err(Format::Qcow2.corrupt_error(what, host));
        }
        if host != Host(0) {
            tables.push_table(host, header.cluster_size(), L2, index * header.bytes_per_l2());
        }
    }
    Ok(())
}

/// Returns the entries of an L2 table that map a part of the disk: the index of each, and the
/// first guest byte of its cluster.
pub(super) fn mapped_clusters(
    header: &Qcow2Header,
    table: LoadedTable<'_>,
) -> impl Iterator<Item = (usize, Guest)> {
    let (cluster, virtual_size) = (header.cluster_size(), header.virtual_size);
    let entries = usize::try_from(cluster / header.l2_entry_bytes()).unwrap_or(0);
    (0..entries)
        .map(move |index| (index, Guest(table.note) + index as u64 * cluster))
        .take_while(move |(_, guest)| guest.remaining_bytes(virtual_size) > 0)
}

/// Returns the runs of stored subclusters within the first `left` bytes of a cluster: the offset
/// of each run in the cluster, and its length.
fn stored_runs(stored: u32, subcluster: u64, left: u64) -> impl Iterator<Item = (u64, u64)> {
    bit_runs(stored).filter_map(move |(first, count)| {
        let skip = u64::from(first) * subcluster;
        let length = (u64::from(count) * subcluster).min(left.saturating_sub(skip));
        (length > 0).then_some((skip, length))
    })
}

/// Requests the clusters that an L2 table maps, clipped to the virtual size.
pub(super) fn l2_wants(
    header: &Qcow2Header,
    table: LoadedTable<'_>,
    batch: &mut RangeBatch,
) -> Result<(), Error> {
    let cluster = header.cluster_size();
    let subcluster = cluster / u64::from(SUBCLUSTERS);
    for (index, guest) in mapped_clusters(header, table) {
        let left = guest.remaining_bytes(header.virtual_size);
        match l2_entry(header, table, index)? {
            ClusterMapping::Unmapped => {}
            // The cluster has a refcount. If this reference were not counted, the cluster would
            // stay parked until the end.
            ClusterMapping::ZeroAllocated { host } => batch.push_ignored(host, cluster),
            ClusterMapping::Compressed { host, length } => {
                batch.push_data(host, length, RangeRole::Compressed, guest)
            }
            ClusterMapping::Data { host, subclusters, is_sole } => {
                let whole = if is_sole { RangeRole::SoleData } else { RangeRole::Data };
                let mut parts = stored_runs(subclusters, subcluster, left).peekable();
                while let Some((skip, length)) = parts.next() {
                    let is_last = parts.peek().is_none();
                    let role = if is_last { whole } else { RangeRole::PartOfData };
                    batch.push_data(host + skip, length, role, guest + skip);
                }
            }
        }
    }
    Ok(())
}
