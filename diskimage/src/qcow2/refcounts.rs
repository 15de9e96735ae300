//! Refcounts, as far as they have come by: they tell which clusters nobody will ask for.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::header::Header;
use super::table::{REFCOUNT_BLOCK, refcount, refcount_table_entry, refcounts_per_block};
use crate::wants::{Batch, Role};

/// Refcount blocks kept at once. A block of 64 KiB counts 2 GiB of image; without a block, clusters are merely
/// kept longer.
const MAX_BYTES: usize = 8 << 20;

/// The refcount blocks that have been read and still lie (partly) ahead.
#[derive(Default)]
pub(super) struct Refcounts {
    blocks: BTreeMap<u64, Bytes>,
    bytes: usize,
}

impl Refcounts {
    /// Asks for the blocks that a refcount table names. A table that names a block twice is not to be trusted: no wants.
    pub(super) fn ask_blocks(header: &Header, table: &[u8], batch: &mut Batch) {
        let host_per_block = refcounts_per_block(header).saturating_mul(header.cluster_size());
        for index in 0..table.len() / 8 {
            if let Some(offset) = refcount_table_entry(header, table, index) {
                let counts_from = (index as u64).saturating_mul(host_per_block);
                batch.push(
                    offset,
                    header.cluster_size(),
                    Role::Table(REFCOUNT_BLOCK),
                    counts_from,
                );
            }
        }
        if batch.has_doubled_tables() {
            batch.clear();
        }
    }

    /// Bytes of the blocks that are kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Keeps a block that counts the clusters from host offset `first`. Returns the bytes of the image that it counts.
    pub(super) fn learn_block(&mut self, header: &Header, first: u64, block: &[u8]) -> Range<u64> {
        if self.bytes + block.len() <= MAX_BYTES {
            self.bytes += block.len();
            // A copy, so that a small block does not hold on to a large network buffer.
            self.blocks.insert(first, Bytes::copy_from_slice(block));
        }
        let counted = refcounts_per_block(header).saturating_mul(header.cluster_size());
        first..first.saturating_add(counted)
    }

    /// How many references the cluster at `host` has, if its block is known.
    pub(super) fn of(&self, header: &Header, host: u64) -> Option<u64> {
        let (first, block) = self.blocks.range(..=host).next_back()?;
        refcount(header, block, (host - first) >> header.cluster_bits)
    }

    /// Lets blocks go whose clusters all lie before `position`.
    pub(super) fn pass(&mut self, header: &Header, position: u64) {
        let host_per_block = refcounts_per_block(header).saturating_mul(header.cluster_size());
        while let Some(entry) = self.blocks.first_entry()
            && entry.key().saturating_add(host_per_block) <= position
        {
            self.bytes -= entry.remove().len();
        }
    }
}
