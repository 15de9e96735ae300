//! Checks that the references to each cluster agree with its refcount. Like QEMU
//! (`qcow2_check_refcounts`), it reads the tables of the disk, of snapshots and of bitmaps entry
//! by entry, and compares them with the refcounts and with the flags in the entries.

mod bitmaps;
mod clusters;
mod entries;
mod snapshots;

use self::clusters::{ClusterTable, ClusterUse};
use self::entries::L2Uses;
use super::header::Qcow2Header;
use super::table::{
    BITMAP_TABLE, BITMAPS, L1, L2, OFFSET_MASK, REFCOUNT_BLOCK, REFCOUNT_TABLE, SNAPSHOT_L1,
    SNAPSHOTS, bytes_per_block, table_entries,
};
use crate::Error;
use crate::findings::Findings;
use crate::layout::ImageCheck;
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch, bytes_of};

/// Reserved bits of L1 entries: 0-8 and 56-62.
const L1_RESERVED: u64 = 0x7f00_0000_0000_01ff;
/// Reserved bits of refcount table entries: 0-8.
const REFCOUNT_TABLE_RESERVED: u64 = 0x1ff;

/// The check of an image.
pub(super) struct Qcow2Check {
    header: Qcow2Header,
    clusters: ClusterTable,
    phase: CheckPhase,
    /// Offset of each L2 table that an L1 table refers to, and true if the L1 table is the disk's
    /// own and not a snapshot's. Complete when all L1 tables have arrived.
    l2_tables: Vec<(Host, bool)>,
    /// References to the L2 tables that are being examined, sorted by offset.
    l2_uses: Vec<L2Uses>,
}

/// The tables to examine next. The refcounts are read before this, so that the other tables can be
/// compared with them.
enum CheckPhase {
    Tables,
    L2Tables,
    End,
}

impl Qcow2Check {
    pub(super) fn new(header: Qcow2Header, image_length: u64) -> Self {
        Self {
            clusters: ClusterTable::new(header.cluster_bits, image_length),
            header,
            phase: CheckPhase::Tables,
            l2_tables: Vec::new(),
            l2_uses: Vec::new(),
        }
    }

    fn begin_tables(&mut self, tables: &mut RangeBatch) {
        let bytes = self.header.l1_size * 8;
        if bytes > 0 {
            self.clusters.count_references(ClusterUse::L1, self.header.l1_offset, bytes, 1);
            tables.push_table(self.header.l1_offset, bytes, L1, 0);
        }
        snapshots::queue_table(&self.header, tables);
        bitmaps::queue_directory(&self.header, tables);
    }

    /// Requests each L2 table once, however often it is referred to.
    fn begin_l2_tables(&mut self, tables: &mut RangeBatch) {
        self.l2_tables.sort_unstable();
        for same in self.l2_tables.chunk_by(|one, other| one.0 == other.0) {
            let Some((host, _)) = same.first() else { continue };
            if !tables.make_room(&mut self.l2_uses) {
                return;
            }
            self.l2_uses.push(L2Uses {
                host: *host,
                times: u32::try_from(same.len()).unwrap_or(u32::MAX),
                is_active: same.iter().any(|(_, is_active)| *is_active),
            });
            tables.push_table(*host, self.header.cluster_size(), L2, 0);
        }
        // Free the list instead of clearing it: it may be large, and the L2 tables need the
        // memory.
        self.l2_tables = Vec::new();
    }

    fn learn_refcount_table(&mut self, table: &[u8], blocks: &mut RangeBatch) {
        for (index, entry) in table_entries(table).enumerate() {
            let host = Host(entry & !REFCOUNT_TABLE_RESERVED);
            if entry == 0 {
                continue;
            }
            // An invalid entry, or one beyond the end of the image, is an error and its block is
            // not read. QEMU also continues with the other blocks.
            if entry != host.0 || !self.is_aligned(host) {
                self.clusters.findings.add_error(|| {
                    format!("refcount table entry {index} is {entry:#x}, which is not a valid block offset")
                });
                continue;
            }
            if host >= self.clusters.clusters_end() {
                self.clusters.findings.add_error(|| {
                    format!(
                        "the refcount block {index} at {host:#x} is beyond the end of the image"
                    )
                });
                continue;
            }
            self.clusters.count_references(
                ClusterUse::RefcountBlock,
                host,
                self.header.cluster_size(),
                1,
            );
            let counts_from = (index as u64).saturating_mul(bytes_per_block(&self.header));
            blocks.push_table(host, self.header.cluster_size(), REFCOUNT_BLOCK, counts_from);
        }
    }

    fn learn_l1(&mut self, bytes: &[u8], is_active: bool, batch: &mut RangeBatch) {
        for (index, entry) in table_entries(bytes).enumerate() {
            if entry == 0 {
                continue;
            }
            let host = Host(entry & OFFSET_MASK);
            if entry & L1_RESERVED != 0 {
                self.clusters
                    .findings
                    .add_error(|| format!("L1 entry {index} has reserved bits set: {entry:#x}"));
            }
            // A table cannot be at these offsets, so nothing is read there.
            if host == Host(0) || !self.is_aligned(host) {
                self.clusters.findings.add_error(|| {
                    format!("L1 entry {index} refers to an L2 table at {host:#x}: {entry:#x}")
                });
                continue;
            }
            self.clusters.count_references(ClusterUse::L2, host, self.header.cluster_size(), 1);
            if is_active {
                self.clusters.compare_flag(host, entry);
            }
            if batch.make_room(&mut self.l2_tables) {
                self.l2_tables.push((host, is_active));
            }
        }
    }

    fn is_aligned(&self, host: Host) -> bool {
        host.is_multiple_of(self.header.cluster_size())
    }
}

impl ImageCheck for Qcow2Check {
    fn queue_first_tables(&mut self, tables: &mut RangeBatch) -> Result<(), Error> {
        self.clusters.allocate_counts(tables);
        let (host, length) = (self.header.refcount_table_offset, self.header.refcount_table_bytes);
        self.clusters.count_references(ClusterUse::Header, Host(0), self.header.cluster_size(), 1);
        self.clusters.count_references(ClusterUse::Refcounts, host, length, 1);
        tables.push_table(host, length, REFCOUNT_TABLE, 0);
        Ok(())
    }

    fn queue_next_tables(&mut self, tables: &mut RangeBatch) {
        match self.phase {
            CheckPhase::Tables => {
                self.phase = CheckPhase::L2Tables;
                self.begin_tables(tables);
            }
            CheckPhase::L2Tables => {
                self.phase = CheckPhase::End;
                self.begin_l2_tables(tables);
            }
            CheckPhase::End => {}
        }
    }

    fn check_table(
        &mut self,
        table: LoadedTable<'_>,
        tables: &mut RangeBatch,
    ) -> Result<(), Error> {
        let bytes = table.bytes;
        match table.kind {
            REFCOUNT_TABLE => self.learn_refcount_table(bytes, tables),
            REFCOUNT_BLOCK => self.clusters.learn_block(&self.header, table),
            L1 => self.learn_l1(bytes, true, tables),
            SNAPSHOT_L1 => self.learn_l1(bytes, false, tables),
            SNAPSHOTS => snapshots::check_table(&self.header, bytes, &mut self.clusters, tables)?,
            BITMAPS => bitmaps::check_directory(&self.header, bytes, &mut self.clusters, tables)?,
            BITMAP_TABLE => bitmaps::learn_table(&self.header, table, &mut self.clusters)?,
            _ => {
                let uses = self.l2_uses.binary_search_by_key(&table.host, |uses| uses.host);
                if let Some(uses) = uses.ok().and_then(|index| self.l2_uses.get(index)) {
                    entries::check_entries(&self.header, uses, bytes, &mut self.clusters);
                }
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.clusters.memory_bytes()
            + bytes_of::<(Host, bool)>(self.l2_tables.capacity())
            + bytes_of::<L2Uses>(self.l2_uses.capacity())
    }

    fn finish_check(self: Box<Self>) -> Findings {
        self.clusters.compare_refcounts()
    }
}
