//! The tables of an image, fetched before its data passes: the map of the ranged route, and all that a check looks at.

use std::ops::Range;

use bytes::Bytes;
use diskimage::{Host, Image, MapBuilder, TableConsumer, TableRange};

use crate::error::{Error, FormatError};
use crate::input::TransferInput;
use crate::memory::{MemoryBudget, MemoryGrant};
use crate::observe::Stage;
use crate::source::Source;

/// Head of the image that is kept while the map is fetched: what qemu-img writes has its L1 and first L2 table in it.
const METADATA_BYTES: usize = 1 << 20;
/// Tables closer to each other than this are fetched together: a request costs more than the bytes between.
const MERGE_GAP_BYTES: u64 = 1 << 20;
/// Longest merged fetch.
const MERGED_BYTES: u64 = 4 << 20;

/// Reads ranges of the image: from its head, if they lie in it, else from the source.
struct MetadataReader<'a> {
    head: Bytes,
    source: &'a dyn Source,
    input: &'a mut TransferInput,
    memory: MemoryGrant,
}

impl MetadataReader<'_> {
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
        let readings = self.input.readings();
        let bytes = readings.time_stage(Stage::Source, || self.source.read_range(range.clone()))?;
        self.input.fetched_ahead(range.start, &bytes)?;
        Ok(bytes)
    }
}

/// Fetches all tables that a map or a check asks for: everything that can be wrong with the map is found here.
pub(crate) fn fetch_tables(
    map: &mut dyn TableConsumer,
    source: &dyn Source,
    input: &mut TransferInput,
    memory: &MemoryBudget,
) -> Result<(), Error> {
    let mut metadata =
        MetadataReader { head: input.peek(METADATA_BYTES)?, source, input, memory: memory.empty_grant() };
    loop {
        let tables = map.next_tables()?;
        if tables.is_empty() {
            return Ok(());
        }
        let mut rest = &tables[..];
        while let Some(first) = rest.first() {
            // A request costs more than the bytes between two tables that are near to each other.
            let (together, later) = rest.split_at(count_mergeable(rest));
            let start = first.host_range().start;
            let end = together.iter().map(|table| table.host_range().end).max().unwrap_or(start);
            let bytes = metadata.read_range(start.0..end.0)?;
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

/// Number of the tables, which are in the order of the image, to fetch with one request.
fn count_mergeable(tables: &[TableRange]) -> usize {
    let Some(first) = tables.first() else { return 0 };
    let near = |pair: &[TableRange]| {
        pair[1].host_range().start <= pair[0].host_range().end.saturating_add(MERGE_GAP_BYTES)
            && pair[1].host_range().end - first.host_range().start <= MERGED_BYTES
    };
    1 + tables.windows(2).take_while(|pair| near(pair)).count()
}

/// Bytes of the image, if the source can be asked for ranges of it. It is asked only here: finding out costs a request.
pub(crate) fn ranged_length(source: &dyn Source, input: &mut TransferInput) -> Option<u64> {
    let length = source.total_bytes()?;
    input.ask_ranged(source).then_some(length)
}

/// The map of an image of `length` bytes.
pub(crate) fn fetch_map(
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
