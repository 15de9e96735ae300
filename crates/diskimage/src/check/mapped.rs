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
}

impl Mapped {
    pub(crate) fn new(layout: Box<dyn Layout>, image_length: u64) -> Self {
        let image_end = Host(image_length);
        Self {
            layout,
            image_end,
            places: Places::new(image_end),
        }
    }

    /// Keeps the tables of what was asked for.
    fn admit(&mut self, wants: Vec<Want>, findings: &mut Findings, tables: &mut Batch) {
        for want in wants {
            self.places.add(&*self.layout, want, findings, tables);
            if want.is_table() {
                tables.push_again(want);
            }
        }
    }
}

impl Check for Mapped {
    fn begin(&mut self, findings: &mut Findings, tables: &mut Batch) -> Result<(), Error> {
        let image_end = self.image_end;
        let first = self.layout.begin(Access::Ranged { image_end })?;
        let wants = first.sorted(self.layout.facts().format)?;
        self.admit(wants, findings, tables);
        Ok(())
    }

    fn learn(&mut self, table: Table<'_>, findings: &mut Findings, tables: &mut Batch) -> Result<(), Error> {
        self.layout.learn(table, tables)?;
        let wants = tables.take_sorted(self.layout.facts().format)?;
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
