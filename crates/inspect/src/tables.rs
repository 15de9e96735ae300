//! Fetches the tables of an image before its data passes: the map for the ranged route, and
//! everything that a check looks at.

use std::ops::Range;

use bytes::Bytes;
use diskimage::{Host, Image, MapBuilder, TableConsumer, TableRange};

use codec::input::TransferInput;
use stream::error::{Error, FormatError};
use stream::memory::{MemoryBudget, MemoryGrant};
use stream::source::Source;

/// Bytes of the image's head that are kept while the map is fetched. In images from qemu-img they
/// include the L1 table and the first L2 table.
const METADATA_BYTES: usize = 1 << 20;
/// Tables that are closer together than this are fetched with one request, because a request costs
/// more than the bytes between them.
const MERGE_GAP_BYTES: u64 = 1 << 20;
/// Maximum number of bytes that one merged request fetches.
const MERGED_BYTES: u64 = 4 << 20;

/// Reads ranges of the image: from the head if they lie in it, otherwise from the source.
pub struct MetadataReader<'a> {
    head: Bytes,
    /// Offset of the image in the source.
    start: u64,
    source: &'a dyn Source,
    input: &'a mut TransferInput,
    memory: MemoryGrant,
}

impl<'a> MetadataReader<'a> {
    /// Reads the image in `part` of `source`.
    pub fn of_part(
        source: &'a dyn Source,
        part: Range<u64>,
        input: &'a mut TransferInput,
        memory: &MemoryBudget,
    ) -> Result<Self, Error> {
        let head_bytes = (part.end - part.start).min(METADATA_BYTES as u64);
        let memory = memory.empty_grant();
        let mut reader = Self { head: Bytes::new(), start: part.start, source, input, memory };
        reader.head = reader.read_range(0..head_bytes)?;
        Ok(reader)
    }

    /// The first bytes of the image.
    pub fn head(&self) -> &Bytes {
        &self.head
    }

    fn read_range(&mut self, range: Range<u64>) -> Result<Bytes, Error> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end))
            && end <= self.head.len()
        {
            return Ok(self.head.slice(start..end));
        }
        self.memory.resize(range.end - range.start).map_err(FormatError::Tables)?;
        self.input.read_ahead(self.source, self.start + range.start..self.start + range.end)
    }

    /// Fetches all tables that a map or a check asks for.
    pub fn fetch_tables(&mut self, map: &mut dyn TableConsumer) -> Result<(), Error> {
        loop {
            let tables = map.next_tables()?;
            if tables.is_empty() {
                return Ok(());
            }
            let mut rest = &tables[..];
            while let Some(first) = rest.first() {
                // A request costs more than the bytes between two nearby tables.
                let (together, later) = rest.split_at(count_mergeable(rest));
                let start = first.host_range().start;
                let end =
                    together.iter().map(|table| table.host_range().end).max().unwrap_or(start);
                let bytes = self.read_range(start.0..end.0)?;
                for table in together {
                    let at = |place: Host| usize::try_from(place - start).unwrap_or(usize::MAX);
                    let range = table.host_range();
                    let bytes = bytes.slice(at(range.start)..at(range.end));
                    map.add_table(table, &bytes)?;
                }
                rest = later;
            }
        }
    }
}

/// Fetches all tables that a map or a check requests. All errors of the map are found here.
pub fn fetch_tables(
    map: &mut dyn TableConsumer,
    source: &dyn Source,
    input: &mut TransferInput,
    memory: &MemoryBudget,
) -> Result<(), Error> {
    let (head, memory) = (input.peek(METADATA_BYTES)?, memory.empty_grant());
    MetadataReader { head, start: 0, source, input, memory }.fetch_tables(map)
}

/// Number of `tables`, which are in file order, to fetch with one request.
fn count_mergeable(tables: &[TableRange]) -> usize {
    let Some(first) = tables.first() else { return 0 };
    let near = |pair: &[TableRange]| {
        pair[1].host_range().start <= pair[0].host_range().end.saturating_add(MERGE_GAP_BYTES)
            && pair[1].host_range().end - first.host_range().start <= MERGED_BYTES
    };
    1 + tables.windows(2).take_while(|pair| near(pair)).count()
}

/// Length of the image in bytes, if the source supports ranges for it. This is determined only
/// here, because finding out costs a request.
pub fn ranged_length(source: &dyn Source, input: &mut TransferInput) -> Option<u64> {
    let length = source.total_bytes()?;
    input.ask_ranged(source).then_some(length)
}

/// Fetches the map of an image of `length` bytes.
pub fn fetch_map(
    image: Image,
    length: u64,
    source: &dyn Source,
    input: &mut TransferInput,
    memory: &MemoryBudget,
) -> Result<MapBuilder, Error> {
    let mut map = MapBuilder::new(image, length, memory.empty_grant())?;
    fetch_tables(&mut map, source, input, memory)?;
    Ok(map)
}
