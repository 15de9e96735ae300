//! Checks the entries of L2 tables.

use super::clusters::{ClusterTable, ClusterUse};
use crate::bytes_at::be64;
use crate::offsets::Host;
use crate::qcow2::header::Qcow2Header;
use crate::qcow2::table::{
    COMPRESSED, COPIED, OFFSET_MASK, SUBCLUSTERS, ZERO, compressed_location, low_half,
};

/// Reserved bits of standard L2 entries: 1-8 and 56-61.
const RESERVED: u64 = 0x3f00_0000_0000_01fe;

/// The references to an L2 table.
pub(super) struct L2Uses {
    pub(super) host: Host,
    pub(super) times: u32,
    /// The disk itself refers to the table, not only snapshots.
    pub(super) is_active: bool,
}

/// An L2 entry, and the references to its table.
struct L2Entry<'a> {
    header: &'a Qcow2Header,
    uses: &'a L2Uses,
    /// Offset of the entry in the image.
    at: Host,
    entry: u64,
    /// Bit masks of the stored subclusters and of the zero subclusters; 0 without extended L2.
    stored: u32,
    zero: u32,
}

/// Checks each entry of an L2 table.
pub(super) fn check_entries(
    header: &Qcow2Header,
    uses: &L2Uses,
    table: &[u8],
    clusters: &mut ClusterTable,
) {
    let width = if header.extended_l2 { 16 } else { 8 };
    for at in (0..table.len()).step_by(width) {
        let bitmap = if header.extended_l2 { be64(table, at + 8).unwrap_or(0) } else { 0 };
        let entry = L2Entry {
            header,
            uses,
            at: uses.host.saturating_add(at as u64),
            entry: be64(table, at).unwrap_or(0),
            stored: low_half(bitmap),
            zero: low_half(bitmap >> SUBCLUSTERS),
        };
        // Check this bit first, because it changes the meaning of all other bits.
        if entry.entry & COMPRESSED != 0 {
            entry.look_at_compressed(clusters);
        } else {
            entry.look_at_standard(clusters);
        }
    }
}

impl L2Entry<'_> {
    fn look_at_compressed(&self, clusters: &mut ClusterTable) {
        let findings = &mut clusters.findings;
        if self.entry & COPIED != 0 {
            findings
                .add_error(|| self.error_text("of a compressed cluster states a refcount of one"));
        }
        if (self.stored, self.zero) != (0, 0) {
            findings.add_error(|| self.error_text("of a compressed cluster has subclusters"));
            // QEMU does not count the reference of such an entry either.
            return;
        }
        let (host, length) = compressed_location(self.header, self.entry & !COPIED);
        if self.uses.is_active {
            findings.data_bytes += length;
        }
        clusters.count_references(ClusterUse::Compressed, host, length, self.uses.times);
    }

    fn look_at_standard(&self, clusters: &mut ClusterTable) {
        let findings = &mut clusters.findings;
        // An error in an entry does not end its examination: QEMU counts the reference
        // nevertheless.
        if self.entry & RESERVED != 0 {
            findings.add_error(|| self.error_text("has reserved bits set"));
        }
        let host = Host(self.entry & OFFSET_MASK);
        let is_zero = self.entry & ZERO != 0 && !self.header.extended_l2;
        if is_zero && self.header.version < 3 {
            findings.error_unknown_to_qemu(|| {
                self.error_text("is of a zero cluster, which version 2 does not support")
            });
        }
        if host == Host(0) {
            if self.stored != 0 {
                findings.add_error(|| self.error_text("has stored subclusters but no cluster"));
            }
            return;
        }
        if self.stored & self.zero != 0 {
            findings.add_error(|| self.error_text("has subclusters that are both stored and zero"));
        }
        let cluster = self.header.cluster_size();
        if !host.is_multiple_of(cluster) {
            findings.add_error(|| self.error_text("does not refer to the start of a cluster"));
        }
        if self.uses.is_active {
            let has_data = if self.header.extended_l2 { self.stored != 0 } else { !is_zero };
            findings.data_bytes += if has_data { cluster } else { 0 };
            clusters.compare_flag(host, self.entry);
        }
        clusters.count_references(ClusterUse::Data, host, cluster, self.uses.times);
    }

    fn error_text(&self, what: &str) -> String {
        format!("the L2 entry {:#x} at {:#x} {what}", self.entry, self.at)
    }
}
