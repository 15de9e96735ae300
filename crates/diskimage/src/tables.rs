//! Tables of an image that are fetched by offset instead of being awaited in a stream.

use std::ops::Range;

use crate::error::Error;
use crate::offsets::Host;
use crate::wanted_ranges::WantedRange;

/// A table to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableRange {
    pub(crate) want: WantedRange,
    /// End of the range to fetch. The rest of the table may lie beyond the end of the image.
    end: Host,
}

impl TableRange {
    /// Clips a wanted table to an image that ends at `image_end`.
    pub(crate) fn from_want(want: WantedRange, image_end: Host) -> Self {
        let end = want.host_end().min(image_end);
        Self { want, end }
    }

    /// Returns the range to fetch, which lies within the image.
    pub fn host_range(&self) -> Range<Host> {
        self.want.host.min(self.end)..self.end
    }
}

/// A consumer of image tables, which requests them one generation after the other.
pub trait TableConsumer {
    /// Returns the tables to fetch and pass to [`add_table`](Self::add_table) next, in image
    /// order. The list is empty when no more tables are needed.
    fn next_tables(&mut self) -> Result<Vec<TableRange>, Error>;

    /// Uses one table. `bytes` are the contents of its [`host_range`](TableRange::host_range).
    fn add_table(&mut self, table: &TableRange, bytes: &[u8]) -> Result<(), Error>;
}
