//! Formats of which there is nothing to look at but where their tables and blocks are.

use super::{Check, Findings, Places};
use crate::Error;
use crate::layout::{Access, Layout};
use crate::wants::{Batch, Table};

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
    fn admit(&mut self, batch: Batch, findings: &mut Findings) -> Result<Batch, Error> {
        let mut tables = Batch::default();
        for want in batch.sorted(self.layout.format())? {
            self.places.add(&*self.layout, want, findings)?;
            if want.table().is_some() {
                tables.push(want.host, want.length.into(), want.role, want.at);
            }
        }
        Ok(tables)
    }
}

impl Check for Mapped {
    fn next(&mut self, findings: &mut Findings) -> Result<Batch, Error> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(Batch::default());
        }
        let image_length = self.image_length;
        let first = self.layout.begin(Access::Ranged { image_length })?;
        self.admit(first, findings)
    }

    fn learn(&mut self, table: Table, bytes: &[u8], findings: &mut Findings) -> Result<Batch, Error> {
        let batch = self.layout.learn(table, bytes)?;
        self.admit(batch, findings)
    }

    fn finish(&mut self, findings: &mut Findings) {
        self.places.finish(&*self.layout, findings);
    }
}
