//! Formats of which there is nothing to look at but where their tables and blocks are.

use super::{Check, Findings, Places};
use crate::Error;
use crate::layout::{Access, Layout};
use crate::wants::{Batch, Table, Want};

/// Follows the tables as a conversion does.
pub(crate) struct Mapped {
    layout: Box<dyn Layout>,
    image_length: u64,
    places: Places,
    has_begun: bool,
}

impl Mapped {
    pub(crate) fn new(layout: Box<dyn Layout>, image_length: u64) -> Self {
        Self {
            layout,
            image_length,
            places: Places::new(image_length),
            has_begun: false,
        }
    }

    /// Keeps the tables of what was asked for.
    fn admit(&mut self, wants: Vec<Want>, findings: &mut Findings, tables: &mut Batch) {
        for want in wants {
            self.places.add(&*self.layout, want, findings, tables);
            if want.table().is_some() {
                tables.push(want.host, want.length.into(), want.role, want.at);
            }
        }
    }
}

impl Check for Mapped {
    fn next(&mut self, findings: &mut Findings, tables: &mut Batch) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let image_length = self.image_length;
        let first = self.layout.begin(Access::Ranged { image_length })?;
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
