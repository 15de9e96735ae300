//! qcow2 as the engine sees it.

use std::ops::Range;

use super::check::Qcow2Check;
use super::header::Header;
use super::map::{l2_tables, l2_wants};
use super::refcounts::Refcounts;
use super::table::{L1, L2, REFCOUNT_BLOCK, REFCOUNT_TABLE};
use super::zeros::Zeros;
use crate::layout::{Access, Check, Layout};
use crate::offsets::{Guest, Host};
use crate::wants::{Batch, Table};
use crate::{Error, Facts};

/// An image and the map that its tables have told so far.
pub(super) struct Qcow2 {
    facts: Facts,
    header: Header,
    refcounts: Refcounts,
    zeros: Zeros,
}

impl Qcow2 {
    pub(super) fn new(header: Header) -> Self {
        Self {
            facts: header.facts(),
            header,
            refcounts: Refcounts::default(),
            zeros: Zeros::default(),
        }
    }
}

impl Layout for Qcow2 {
    fn into_check(self: Box<Self>, image_length: u64) -> Box<dyn Check> {
        Box::new(Qcow2Check::new(self.header, image_length))
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn begin(&mut self, _access: Access) -> Result<Batch, Error> {
        let mut first = Batch::default();
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

    fn learn(&mut self, table: Table<'_>, batch: &mut Batch) -> Result<(), Error> {
        match table.kind {
            L1 => l2_tables(&self.header, table.bytes, batch)?,
            REFCOUNT_TABLE => Refcounts::ask_blocks(&self.header, table.bytes, batch),
            REFCOUNT_BLOCK => batch.counted = self.refcounts.learn_block(&self.header, table),
            _ => {
                l2_wants(&self.header, table, batch)?;
                if self.header.is_delta {
                    self.zeros.learn(&self.header, table, batch);
                }
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.refcounts.bytes() + self.zeros.bytes()
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

    fn refcount(&self, host: Host) -> Option<u64> {
        self.refcounts.of(&self.header, host)
    }

    fn pass(&mut self, position: Host) {
        self.refcounts.pass(&self.header, position);
    }

    fn zeros(&self) -> &[Range<Guest>] {
        self.zeros.ranges()
    }
}
