//! The refcounts that have arrived so far. They show when no further references to a cluster can
//! follow.
//!
//! A cluster is released when as many references have arrived as its refcount states. Unless it
//! holds compressed data, each snapshot counts as one reference, because the tables of snapshots
//! are not read. If a cluster is needed after it was released, the transfer fails: wrong refcounts
//! must never lead to wrong data. The ranged mode does not use refcounts.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::header::Qcow2Header;
use super::table::{REFCOUNT_BLOCK, bytes_per_block, read_refcount, table_entries};
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch};

/// Bits 9-63 of a refcount table entry: the offset of a refcount block.
const REFBLOCK_MASK: u64 = !0x1ff;

/// Maximum bytes of refcount blocks that are kept at once. A block of 64 KiB counts 2 GiB of the
/// image. If a block is not kept, its clusters only stay parked longer.
const MAX_BYTES: usize = 8 << 20;

/// The refcount blocks that have been read and at least partly lie ahead.
#[derive(Default)]
pub(super) struct RefcountBlocks {
    blocks: BTreeMap<Host, Bytes>,
    bytes: usize,
}

impl RefcountBlocks {
    /// Requests the blocks that a refcount table refers to. If the table refers to a block twice,
    /// it is not trusted and nothing is requested.
    pub(super) fn ask_blocks(header: &Qcow2Header, table: &[u8], batch: &mut RangeBatch) {
        for (index, entry) in (0..).zip(table_entries(table)) {
            let host = Host(entry & REFBLOCK_MASK);
            // Refcounts only help to save memory, so an invalid entry means that they are unknown.
            if host != Host(0) && host.is_multiple_of(header.cluster_size()) {
                let counts_from = bytes_per_block(header).saturating_mul(index);
                batch.push_table(host, header.cluster_size(), REFCOUNT_BLOCK, counts_from);
            }
        }
        if batch.has_doubled_tables() {
            batch.clear();
        }
    }

    /// Bytes of memory that the kept blocks take.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Keeps a block. Returns the bytes of the image whose refcounts it contains.
    pub(super) fn learn_block(
        &mut self,
        header: &Qcow2Header,
        block: LoadedTable<'_>,
    ) -> Range<Host> {
        let first = Host(block.note);
        if self.bytes + block.bytes.len() <= MAX_BYTES {
            self.bytes += block.bytes.len();
            // Copy the block, so that a small block does not keep a large network buffer alive.
            self.blocks.insert(first, Bytes::copy_from_slice(block.bytes));
        }
        first..first.saturating_add(bytes_per_block(header))
    }

    /// Returns the refcount of the cluster at `host`, if its block is known.
    pub(super) fn refcount_at(&self, header: &Qcow2Header, host: Host) -> Option<u64> {
        let (first, block) = self.blocks.range(..=host).next_back()?;
        read_refcount(header, block, (host - *first) >> header.cluster_bits)
    }

    /// Drops the blocks whose clusters all lie before `position`.
    pub(super) fn drop_before(&mut self, header: &Qcow2Header, position: Host) {
        while let Some(entry) = self.blocks.first_entry()
            && entry.key().saturating_add(bytes_per_block(header)) <= position
        {
            self.bytes -= entry.remove().len();
        }
    }
}
