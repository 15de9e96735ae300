//! Tables of an image that are fetched, not waited for.

use std::ops::Range;

use crate::error::Error;
use crate::offsets::Host;
use crate::wanted_ranges::WantedRange;

/// A table to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableRange {
    pub(crate) want: WantedRange,
    /// Its end in the image; some of the table may lie behind the end of that.
    end: Host,
}

impl TableRange {
    /// The part of a wanted table that lies in an image which ends at `image_end`.
    pub(crate) fn from_want(want: WantedRange, image_end: Host) -> Self {
        let end = want.host_end().min(image_end);
        Self { want, end }
    }

    /// Its place in the image; within the image.
    pub fn host_range(&self) -> Range<Host> {
        self.want.host.min(self.end)..self.end
    }
}

/// Something that needs tables of an image, generation by generation.
pub trait TableConsumer {
    /// The tables to fetch and [`add`](Self::add_table) next, in the order of the image; none when there are no more.
    fn next_tables(&mut self) -> Result<Vec<TableRange>, Error>;

    /// Takes what one table says; `bytes` are those of its range.
    fn add_table(&mut self, table: &TableRange, bytes: &[u8]) -> Result<(), Error>;
}
