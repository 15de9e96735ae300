//! Builds a map from tables that are read before any data.

use super::ImageStream;
use crate::layout::{AccessOrder, ImageLayout};
use crate::memory::{ImageMemory, MemoryAccount};
use crate::offsets::Host;
use crate::tables::{TableConsumer, TableRange};
use crate::wanted_ranges::{RangeBatch, RangeRole, WantedQueue, WantedRange, bytes_of};
use crate::{Error, Image};

/// Builds a complete map from tables that are fetched before the data, one generation after the
/// other.
pub struct MapBuilder {
    pub(super) layout: Box<dyn ImageLayout>,
    pub(super) image_end: Host,
    /// Tables that are known but have not been handed out yet.
    tables: Vec<TableRange>,
    /// Bytes of memory of the tables that were handed out last.
    handed_out: u64,
    pub(super) wants: WantedQueue,
    mapped_bytes: u64,
    pub(super) account: MemoryAccount,
}

impl MapBuilder {
    /// Creates a builder for the map of `image`, which is `image_length` bytes long. The map is
    /// charged to `memory`, see [`ImageStream::one_pass`].
    pub fn new(
        image: Image,
        image_length: u64,
        memory: impl ImageMemory + 'static,
    ) -> Result<Self, Error> {
        let image_end = Host(image_length);
        let mut builder = Self {
            layout: image.layout,
            image_end,
            tables: Vec::new(),
            handed_out: 0,
            wants: WantedQueue::default(),
            mapped_bytes: 0,
            account: MemoryAccount::new(memory),
        };
        let first = builder.layout.initial_ranges(AccessOrder::Ranged { image_end })?;
        builder.add_batch(first)?;
        Ok(builder)
    }

    /// Bytes of memory that the builder uses.
    fn memory_bytes(&self) -> u64 {
        let tables = bytes_of::<TableRange>(self.tables.capacity());
        self.wants.memory_bytes() + self.handed_out + tables + self.layout.memory_bytes()
    }

    fn add_batch(&mut self, batch: RangeBatch) -> Result<(), Error> {
        let mut wants = batch.into_sorted(self.layout.head_facts().format)?;
        let tables = wants.iter().filter(|want| want.is_table()).count();
        let grown = growth_bytes(&self.tables, tables);
        self.account
            .hold_bytes(self.memory_bytes() + bytes_of::<WantedRange>(wants.capacity()) + grown)?;
        // Drop ranges and tables that exist only to save memory when reading in one pass.
        wants.retain(|want| self.layout.needs_range(want));
        for want in &wants {
            self.check_inside(want)?;
        }
        let tables = wants.iter().filter(|want| want.is_table());
        let within = |want: &WantedRange| TableRange::from_want(*want, self.image_end);
        self.tables.extend(tables.map(within));
        wants.retain(|want| !want.is_table());
        self.mapped_bytes += wants.iter().map(|want| u64::from(want.length)).sum::<u64>();
        self.wants.add_sorted(wants);
        Ok(())
    }

    fn check_inside(&self, want: &WantedRange) -> Result<(), Error> {
        let end = match want.role {
            // The length of a compressed cluster is rounded up to sectors, so the image may end
            // inside the last sector.
            RangeRole::Compressed => want.host.saturating_add(1),
            _ => want.host_end(),
        };
        if end > self.image_end {
            let what = self.layout.name_of(want);
            return Err(Error::truncated_error(what, want.host, self.image_end));
        }
        Ok(())
    }

    /// Number of image bytes that contain guest data.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes
    }

    /// Returns the stream that converts the image. It never parks anything.
    pub fn into_stream(self) -> ImageStream {
        ImageStream::from_map(self.layout, self.wants, self.account)
    }
}

impl TableConsumer for MapBuilder {
    fn next_tables(&mut self) -> Result<Vec<TableRange>, Error> {
        if self.tables.is_empty() {
            self.layout.check_end(self.image_end)?;
        }
        let mut tables = std::mem::take(&mut self.tables);
        // Return the tables in image order, so that the caller can fetch neighbours with one
        // request.
        tables.sort_unstable();
        self.handed_out = bytes_of::<TableRange>(tables.capacity());
        Ok(tables)
    }

    fn add_table(&mut self, table: &TableRange, bytes: &[u8]) -> Result<(), Error> {
        let Some(table) = table.want.loaded_table(bytes) else {
            return Ok(());
        };
        let mut batch = RangeBatch::with_room(self.account.available_beside(self.memory_bytes()));
        self.layout.parse_table(table, &mut batch)?;
        self.layout.check_end(self.image_end)?;
        if batch.is_exceeded() {
            return Err(self.account.limit_error());
        }
        self.add_batch(batch)
    }
}

/// Bytes by which the memory of a list grows when `more` values are added. The list at least
/// doubles in size.
fn growth_bytes<T>(list: &Vec<T>, more: usize) -> u64 {
    if list.capacity() - list.len() >= more {
        return 0;
    }
    let capacity = (list.len() + more).max(2 * list.capacity());
    bytes_of::<T>(capacity - list.capacity())
}
