//! Implements the layout interface for the qcow2 format.

use std::ops::Range;

use super::check::Qcow2Check;
use super::header::Qcow2Header;
use super::map::{l2_tables, l2_wants};
use super::refcounts::RefcountBlocks;
use super::table::{L1, L2, REFCOUNT_BLOCK, REFCOUNT_TABLE};
use super::zeros::ZeroRanges;
use crate::layout::{AccessOrder, ImageCheck, ImageLayout};
use crate::offsets::{Guest, Host};
use crate::wanted_ranges::{LoadedTable, RangeBatch};
use crate::{Error, HeadFacts};

/// An image and the part of its map that is known so far.
pub(super) struct Qcow2Layout {
    facts: HeadFacts,
    header: Qcow2Header,
    refcounts: RefcountBlocks,
    zeros: ZeroRanges,
}

impl Qcow2Layout {
    pub(super) fn new(header: Qcow2Header) -> Self {
        Self {
            facts: header.head_facts(),
            header,
            refcounts: RefcountBlocks::default(),
            zeros: ZeroRanges::default(),
        }
    }
}

impl ImageLayout for Qcow2Layout {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn ImageCheck> {
        Box::new(Qcow2Check::new(self.header, image_length))
    }

    fn head_facts(&self) -> &HeadFacts {
        &self.facts
    }

    fn initial_ranges(&mut self, _access: AccessOrder) -> Result<RangeBatch, Error> {
        let mut first = RangeBatch::default();
        let header = &self.header;
        if header.l1_entries == 0 {
            return Ok(first);
        }
        first.push_table(header.l1_offset, header.l1_entries * 8, L1, 0);
        if header.has_refcounts() {
            let (host, length) = (header.refcount_table_offset, header.refcount_table_bytes);
            first.push_table(host, length, REFCOUNT_TABLE, 0);
        }
        Ok(first)
    }

    fn parse_table(&mut self, table: LoadedTable<'_>, batch: &mut RangeBatch) -> Result<(), Error> {
        match table.kind {
            L1 => l2_tables(&self.header, table.bytes, batch)?,
            REFCOUNT_TABLE => RefcountBlocks::ask_blocks(&self.header, table.bytes, batch),
            REFCOUNT_BLOCK => batch.counted = self.refcounts.learn_block(&self.header, table),
            _ => {
                l2_wants(&self.header, table, batch)?;
                if self.header.is_delta {
                    self.zeros.add_table(&self.header, table, batch);
                }
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.refcounts.memory_bytes() + self.zeros.memory_bytes()
    }

    fn table_name(&self, kind: u8) -> &'static str {
        match kind {
            L1 => "the L1 table",
            L2 => "an L2 table",
            _ => "a refcount table",
        }
    }

    fn is_required(&self, kind: u8) -> bool {
        matches!(kind, L1 | L2)
    }

    fn counts_references(&self) -> bool {
        true
    }

    fn refcount_at(&self, host: Host) -> Option<u64> {
        self.refcounts.refcount_at(&self.header, host)
    }

    fn advance_to(&mut self, position: Host) {
        self.refcounts.drop_before(&self.header, position);
    }

    fn zero_ranges(&self) -> &[Range<Guest>] {
        self.zeros.ranges()
    }
}
