//! The check for formats in which only the positions of tables and blocks can be compared.

use super::places::ReferencedRanges;
use crate::Error;
use crate::findings::Findings;
use crate::layout::{AccessOrder, ImageCheck, ImageLayout};
use crate::wanted_ranges::{LoadedTable, RangeBatch, WantedRange};

/// Follows the tables in the same way as a conversion does.
pub(crate) struct MappedCheck {
    layout: Box<dyn ImageLayout>,
    places: ReferencedRanges,
}

impl MappedCheck {
    pub(crate) fn new(layout: Box<dyn ImageLayout>, image_length: u64) -> Self {
        Self { layout, places: ReferencedRanges::new(image_length) }
    }

    /// Records the ranges that a table refers to, and requests the tables among them.
    fn add_ranges(&mut self, wants: Vec<WantedRange>, tables: &mut RangeBatch) {
        for want in wants {
            self.places.add_range(&*self.layout, want, tables);
            if want.is_table() {
                tables.push_again(want);
            }
        }
    }
}

impl ImageCheck for MappedCheck {
    fn queue_first_tables(&mut self, tables: &mut RangeBatch) -> Result<(), Error> {
        let image_end = self.places.image_end;
        let first = self.layout.initial_ranges(AccessOrder::Ranged { image_end })?;
        let wants = first.into_sorted(self.layout.head_facts().format)?;
        self.add_ranges(wants, tables);
        Ok(())
    }

    fn check_table(
        &mut self,
        table: LoadedTable<'_>,
        tables: &mut RangeBatch,
    ) -> Result<(), Error> {
        self.layout.parse_table(table, tables)?;
        self.layout.check_end(self.places.image_end)?;
        let wants = tables.take_sorted(self.layout.head_facts().format)?;
        self.add_ranges(wants, tables);
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.places.memory_bytes() + self.layout.memory_bytes()
    }

    fn finish_check(self: Box<Self>) -> Findings {
        self.places.check_overlaps(&*self.layout)
    }
}
