//! Refcounts, as far as they have come by: they tell which clusters nothing else will ask for.
//!
//! A plain cluster that was matched once is let go: in a consistent image only snapshots refer to it again, and their
//! tables do not count. If a cluster is wanted after it was let go, the image contradicts its refcounts and the
//! transfer fails: wrong refcounts must never become wrong data. The ranged route uses none.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::header::Qcow2Header;
use super::table::{REFCOUNT_BLOCK, bytes_per_block, read_refcount, refcount_table_entry};
use crate::offsets::Host;
use crate::wanted_ranges::{LoadedTable, RangeBatch};

/// Refcount blocks kept at once. A block of 64 KiB counts 2 GiB of image; without a block, clusters are merely
/// kept longer.
const MAX_BYTES: usize = 8 << 20;

/// The refcount blocks that have been read and still lie (partly) ahead.
#[derive(Default)]
pub(super) struct RefcountBlocks {
    blocks: BTreeMap<Host, Bytes>,
    bytes: usize,
}

impl RefcountBlocks {
    /// Asks for the blocks that a refcount table names. A table that names a block twice is not to be trusted: no wants.
    pub(super) fn ask_blocks(header: &Qcow2Header, table: &[u8], batch: &mut RangeBatch) {
        for index in 0..table.len() / 8 {
            if let Some(offset) = refcount_table_entry(header, table, index) {
                let counts_from = (index as u64).saturating_mul(bytes_per_block(header));
                batch.push_table(offset, header.cluster_size(), REFCOUNT_BLOCK, counts_from);
            }
        }
        if batch.has_doubled_tables() {
            batch.clear();
        }
    }

    /// Bytes of the blocks that are kept.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Keeps a block. Returns the bytes of the image that it counts.
    pub(super) fn learn_block(&mut self, header: &Qcow2Header, block: LoadedTable<'_>) -> Range<Host> {
        let first = Host(block.note);
        if self.bytes + block.bytes.len() <= MAX_BYTES {
            self.bytes += block.bytes.len();
            // A copy, so that a small block does not hold on to a large network buffer.
            self.blocks.insert(first, Bytes::copy_from_slice(block.bytes));
        }
        first..first.saturating_add(bytes_per_block(header))
    }

    /// References to the cluster at `host`, if its block is known.
    pub(super) fn refcount_at(&self, header: &Qcow2Header, host: Host) -> Option<u64> {
        let (first, block) = self.blocks.range(..=host).next_back()?;
        read_refcount(header, block, (host - *first) >> header.cluster_bits)
    }

    /// Lets blocks go whose clusters all lie before `position`.
    pub(super) fn drop_before(&mut self, header: &Qcow2Header, position: Host) {
        while let Some(entry) = self.blocks.first_entry()
            && entry.key().saturating_add(bytes_per_block(header)) <= position
        {
            self.bytes -= entry.remove().len();
        }
    }
}
