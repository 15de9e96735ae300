//! Images with a map, by the ranged route (map first) or in one pass.

use std::ops::Range;

use bytes::Bytes;
use diskimage::{Guest, Host, Sink, Stream, TableRange, Tables};

use super::Input;
use super::park::Park;
use crate::chunks::Chunks;
use crate::error::{Error, FormatError};
use crate::memory::{Budget, Grant};
use crate::source::Source;
use crate::target::Writer;

/// Head of the image that is kept while the map is fetched: what qemu-img writes has its L1 and first L2 table in it.
const METADATA_BYTES: usize = 1 << 20;
/// Tables closer to each other than this are fetched together: a request costs more than the bytes between.
const MERGE_GAP_BYTES: u64 = 1 << 20;
/// Longest merged fetch.
const MERGED_BYTES: u64 = 4 << 20;

/// Reads ranges of the image: from its head, if they lie in it, else from the source.
struct Metadata<'a> {
    head: Bytes,
    source: &'a dyn Source,
    input: &'a mut Input,
    memory: Grant,
}

impl Metadata<'_> {
    fn read(&mut self, range: Range<u64>) -> Result<Bytes, Error> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end))
            && end <= self.head.len()
        {
            return Ok(self.head.slice(start..end));
        }
        self.memory
            .resize(range.end - range.start)
            .map_err(FormatError::Tables)?;
        let bytes = self.source.read_range(range.clone())?;
        self.input.fetched_ahead(range.start, &bytes)?;
        Ok(bytes)
    }
}

/// Fetches all tables that a map or a check asks for: everything that can be wrong with the map is found here.
pub fn fetch_tables(
    map: &mut dyn Tables,
    source: &dyn Source,
    input: &mut Input,
    memory: &Budget,
) -> Result<(), Error> {
    let mut metadata = Metadata {
        head: input.peek(METADATA_BYTES)?,
        source,
        input,
        memory: memory.grant(),
    };
    loop {
        let tables = map.next_tables().map_err(FormatError::from)?;
        if tables.is_empty() {
            return Ok(());
        }
        let mut rest = &tables[..];
        while let Some(first) = rest.first() {
            let (together, later) = rest.split_at(merged(rest));
            let start = first.range().start;
            let end = together
                .iter()
                .map(|table| table.range().end)
                .max()
                .unwrap_or(start);
            let bytes = metadata.read(start.0..end.0)?;
            for table in together {
                let at = |place: Host| usize::try_from(place - start).unwrap_or(usize::MAX);
                let range = table.range();
                let bytes = bytes.slice(at(range.start)..at(range.end));
                map.add(table, &bytes).map_err(FormatError::from)?;
            }
            rest = later;
        }
    }
}

/// How many of the tables, which are in the order of the image, to fetch with one request.
fn merged(tables: &[TableRange]) -> usize {
    let Some(first) = tables.first() else { return 0 };
    let near = |pair: &[TableRange]| {
        pair[1].range().start <= pair[0].range().end.saturating_add(MERGE_GAP_BYTES)
            && pair[1].range().end - first.range().start <= MERGED_BYTES
    };
    1 + tables.windows(2).take_while(|pair| near(pair)).count()
}

/// Converts an image whose map is known.
pub fn copy_mapped(
    stream: &mut Stream,
    input: &mut Input,
    writer: &mut Writer<'_>,
    mut tick: impl FnMut(&Writer<'_>),
) -> Result<(), Error> {
    pass_mapped(stream, input, &mut Mapped { writer }, |sink| tick(sink.writer))
}

/// Passes an image whose map is known to `sink`. Bytes that nothing maps are skipped where the source can.
pub fn pass_mapped<S: Sink<Error = Error>>(
    stream: &mut Stream,
    input: &mut Input,
    sink: &mut S,
    mut tick: impl FnMut(&S),
) -> Result<(), Error> {
    while let Some(needed) = stream.next_needed() {
        let position = Host(input.skip_towards(needed.0)?);
        if position > stream.position() {
            stream.skip_to(position);
        }
        let Some(chunk) = input.next_chunk()? else { break };
        stream.push(chunk, sink)?;
        tick(sink);
    }
    stream.finish(sink)
}

/// Converts an image that comes once, in file order.
pub fn copy_one_pass(
    stream: &mut Stream,
    input: &mut Input,
    writer: &mut Writer<'_>,
    park: Park,
    mut tick: impl FnMut(&Writer<'_>),
) -> Result<(), Error> {
    let mut sink = OnePass { writer, park };
    while let Some(chunk) = input.next_chunk()? {
        stream.push(chunk, &mut sink)?;
        tick(sink.writer);
    }
    stream.finish(&mut sink)?;
    sink.park.finish(sink.writer)
}

/// The sink of an image with a complete map.
struct Mapped<'w, 's> {
    writer: &'w mut Writer<'s>,
}

impl Sink for Mapped<'_, '_> {
    type Error = Error;

    fn data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.writer.data(guest.0, bytes)
    }

    fn compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.writer.compressed(guest.0, bytes)
    }

    fn park(&mut self, _host: Host, _pieces: &[Bytes]) -> Result<(), Error> {
        Ok(())
    }

    fn parked(&mut self, offset: Host) -> Result<Bytes, Error> {
        Err(FormatError::from(diskimage::Error::RefcountContradiction {
            what: "a cluster",
            offset,
        })
        .into())
    }

    fn forget(&mut self, _host: Host) -> Result<(), Error> {
        Ok(())
    }
}

/// The sink of an image whose map is still coming.
struct OnePass<'w, 's> {
    writer: &'w mut Writer<'s>,
    park: Park,
}

impl Sink for OnePass<'_, '_> {
    type Error = Error;

    fn data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.park.claim(guest.0, bytes.len() as u64, self.writer)?;
        self.writer.data(guest.0, bytes)
    }

    fn compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.park.claim(guest.0, 1, self.writer)?;
        self.writer.compressed(guest.0, bytes)
    }

    fn park(&mut self, host: Host, pieces: &[Bytes]) -> Result<(), Error> {
        self.park.put(host.0, pieces, self.writer)
    }

    fn parked(&mut self, host: Host) -> Result<Bytes, Error> {
        self.park.get(host.0, self.writer)
    }

    fn forget(&mut self, host: Host) -> Result<(), Error> {
        self.park.remove(host.0, self.writer)
    }
}

impl From<diskimage::Error> for Error {
    fn from(error: diskimage::Error) -> Self {
        FormatError::from(error).into()
    }
}
