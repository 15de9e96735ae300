//! Checks snapshots: a table of entries with variable length, and an L1 table for each of them
//! (qcow2.rst, "Snapshots").

use super::clusters::{ClusterTable, ClusterUse};
use crate::bytes_at::{be16, be32, be64};
use crate::offsets::Host;
use crate::qcow2::header::{MAX_L1_ENTRIES, Qcow2Header};
use crate::qcow2::table::{SNAPSHOT_L1, SNAPSHOTS};
use crate::wanted_ranges::RangeBatch;
use crate::{Error, Format};

/// Length of the fixed part of an entry.
const ENTRY_BYTES: u64 = 40;
/// Longest extra data of an entry, the same limit as in QEMU (`QCOW_MAX_SNAPSHOT_EXTRA_DATA`), and
/// the shortest that version 3 allows.
const MAX_EXTRA_BYTES: u32 = 1024;
const MIN_EXTRA_BYTES: u32 = 16;
/// Longest possible entry: the fixed part is followed by extra data, and by an ID and a name with
/// lengths of 16 bits.
const MAX_ENTRY_BYTES: u64 = ENTRY_BYTES + 1024 + 2 * 0xffff + 8;
/// Largest snapshot table in bytes, the same limit as in QEMU (`QCOW_MAX_SNAPSHOTS_SIZE`).
const MAX_TABLE_BYTES: u64 = 64 << 20;

/// Requests the snapshot table. Its exact length is not known before it is read.
pub(super) fn queue_table(header: &Qcow2Header, tables: &mut RangeBatch) {
    let length = (u64::from(header.snapshots) * MAX_ENTRY_BYTES).min(MAX_TABLE_BYTES);
    if length > 0 {
        tables.push_table(header.snapshot_table_offset, length, SNAPSHOTS, 0);
    }
}

/// Requests the L1 tables of all snapshots.
pub(super) fn check_table(
    header: &Qcow2Header,
    table: &[u8],
    clusters: &mut ClusterTable,
    tables: &mut RangeBatch,
) -> Result<(), Error> {
    let mut at = 0usize;
    for index in 0..header.snapshots {
        at = at.next_multiple_of(8);
        let entry = table.get(at..).unwrap_or_default();
        let number = |place: usize| be32(entry, place).unwrap_or(0);
        let (l1_offset, l1_size) = (Host(be64(entry, 0).unwrap_or(0)), u64::from(number(8)));
        // If QEMU could not open the image, the check fails. If QEMU would only repair it, this is
        // a finding.
        let extra = number(36);
        if extra > MAX_EXTRA_BYTES {
            let what = format!("snapshot {index} has {extra} bytes of extra data");
            return Err(snapshots_error(header, what));
        }
        if header.version >= 3 && extra < MIN_EXTRA_BYTES {
            clusters
                .findings
                .add_error(|| format!("snapshot {index} has only {extra} bytes of extra data"));
        }
        let names = [12, 14].map(|place| usize::from(be16(entry, place).unwrap_or(0)));
        at += 40 + extra as usize + names[0] + names[1];
        if at as u64 > MAX_TABLE_BYTES {
            let count = index + 1;
            let what = format!(
                "the first {count} snapshots take {at} bytes, at most {MAX_TABLE_BYTES} are allowed"
            );
            return Err(snapshots_error(header, what));
        }
        if !l1_offset.is_multiple_of(header.cluster_size()) || l1_size > MAX_L1_ENTRIES {
            clusters.findings.add_error(|| {
                format!("snapshot {index} has an L1 table of {l1_size} entries at {l1_offset:#x}")
            });
        } else if l1_size > 0 {
            clusters.count_references(ClusterUse::L1, l1_offset, l1_size * 8, 1);
            tables.push_table(l1_offset, l1_size * 8, SNAPSHOT_L1, index.into());
        }
    }
    clusters.count_references(ClusterUse::Other, header.snapshot_table_offset, at as u64, 1);
    Ok(())
}

/// Creates the error for unreadable snapshots. QEMU does not open such an image.
fn snapshots_error(header: &Qcow2Header, what: String) -> Error {
    Format::Qcow2.corrupt_error(what, header.snapshot_table_offset)
}
