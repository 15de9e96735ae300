//! The check of formats that have nothing to compare but the places of their tables and blocks.

use super::places::Places;
use crate::Error;
use crate::findings::Findings;
use crate::layout::{Access, Check, Layout};
use crate::offsets::Host;
use crate::wants::{Batch, Table, Want};

/// Follows the tables as a conversion does.
pub(crate) struct Mapped {
    layout: Box<dyn Layout>,
    image_end: Host,
    places: Places,
    has_begun: bool,
}

impl Mapped {
    pub(crate) fn new(layout: Box<dyn Layout>, image_length: u64) -> Self {
        let image_end = Host(image_length);
        Self {
            layout,
            image_end,
            places: Places::new(image_end),
            has_begun: false,
        }
    }

    /// Keeps the tables of what was asked for.
    fn admit(&mut self, wants: Vec<Want>, findings: &mut Findings, tables: &mut Batch) {
        for want in wants {
            self.places.add(&*self.layout, want, findings, tables);
            if let Some(table) = want.table() {
                tables.push_table(table.host, want.length.into(), table.kind, table.note);
            }
        }
    }
}

impl Check for Mapped {
    fn next(&mut self, findings: &mut Findings, tables: &mut Batch) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let image_end = self.image_end;
        let first = self.layout.begin(Access::Ranged { image_end })?;
        let wants = first.sorted(self.layout.format())?;
        self.admit(wants, findings, tables);
        Ok(())
    }

    fn learn(
        &mut self,
        table: Table,
        bytes: &[u8],
        findings: &mut Findings,
        tables: &mut Batch,
    ) -> Result<(), Error> {
        self.layout.learn(table, bytes, tables)?;
        let wants = tables.take_sorted(self.layout.format())?;
        self.admit(wants, findings, tables);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.places.bytes() + self.layout.memory_bytes()
    }

    fn finish(&mut self, findings: &mut Findings) {
        self.places.finish(&*self.layout, findings);
    }
}
