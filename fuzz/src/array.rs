//! A sink that stores the disk in memory, and checks everything that a sink may rely on.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use diskimage::{
    Error, Format, Guest, GuestSink, HeadFacts, Host, Image, ImageMemoryLimit, ImageStream,
    MAX_HEAD_BYTES, MapBuilder, TableConsumer,
};

use crate::Pieces;

/// Largest disk. Larger ones would only slow the fuzzer down.
const MAX_DISK_BYTES: u64 = 1 << 20;

/// Memory limit for a map. It is small, so that memory taken without permission exceeds the
/// fuzzer's limit.
const MEMORY: ImageMemoryLimit = ImageMemoryLimit(64 << 20);

/// The guest's disk. Compressed clusters are stored as they are, because another stage inflates
/// them.
#[derive(Debug, PartialEq, Eq)]
pub struct Array {
    cluster: u64,
    unit: u64,
    disk: Vec<u8>,
    written: Vec<bool>,
    compressed: BTreeMap<Guest, Bytes>,
    parked: BTreeMap<Host, Bytes>,
}

impl Array {
    /// Makes an empty disk for an image with these `facts`, or `None` if the disk would be too
    /// large.
    fn new(facts: &HeadFacts) -> Option<Self> {
        let size = usize::try_from(facts.virtual_size.min(MAX_DISK_BYTES + 1)).ok()?;
        (facts.virtual_size <= MAX_DISK_BYTES).then(|| Self {
            cluster: facts.clusters.map_or(1, |clusters| clusters.size),
            unit: facts.parking_unit.unwrap_or(1),
            disk: vec![0; size],
            written: vec![false; size],
            compressed: BTreeMap::new(),
            parked: BTreeMap::new(),
        })
    }

    /// Opens an image of `format` and makes a disk for it. Returns `None` if the image is refused
    /// or its disk too large.
    fn open(format: Format, pieces: &Pieces) -> Option<(Image, Self)> {
        let head = pieces.rest();
        let image = Image::open(format, &head[..head.len().min(MAX_HEAD_BYTES)]).ok()?;
        let array = Self::new(&image.head_facts())?;
        Some((image, array))
    }

    /// Reads the image in one pass.
    pub fn one_pass(format: Format, pieces: Pieces) -> Option<Result<Self, Error>> {
        let (image, mut array) = Self::open(format, &pieces)?;
        Some(array.read_one_pass(image, pieces).map(|()| array))
    }

    fn read_one_pass(&mut self, image: Image, pieces: Pieces) -> Result<(), Error> {
        let mut stream = ImageStream::one_pass(image, MEMORY)?;
        for piece in pieces {
            stream.push(piece, self)?;
        }
        stream.finish(self)?;
        assert!(self.parked.is_empty(), "parts of the image are still parked at the end");
        Ok(())
    }

    /// Reads the map of the image first, and then the data that it refers to.
    pub fn map_first(format: Format, pieces: Pieces) -> Option<Result<Self, Error>> {
        let (image, mut array) = Self::open(format, &pieces)?;
        Some(array.read_map_first(image, pieces).map(|()| array))
    }

    fn read_map_first(&mut self, image: Image, mut pieces: Pieces) -> Result<(), Error> {
        let bytes = pieces.rest().clone();
        let mut map = MapBuilder::new(image, bytes.len() as u64, MEMORY)?;
        loop {
            let tables = map.next_tables()?;
            if tables.is_empty() {
                break;
            }
            for table in tables {
                map.add_table(
                    &table,
                    &bytes[range(table.host_range().start.0..table.host_range().end.0)],
                )?;
            }
        }
        let mut stream = map.into_stream();
        while let Some(needed) = stream.next_needed() {
            pieces.advance(usize::try_from(needed - stream.position()).unwrap());
            stream.skip_to(needed);
            let Some(piece) = pieces.next() else { break };
            stream.push(piece, self)?;
        }
        stream.finish(self)
    }

    /// Marks a range as written. Every guest byte must be written at most once, and must lie on
    /// the disk.
    fn write(&mut self, at: Range<u64>) -> Range<usize> {
        assert!(
            at.end <= self.disk.len() as u64,
            "{at:?} is beyond the disk of {} bytes",
            self.disk.len()
        );
        let at = range(at);
        assert!(self.written[at.clone()].iter().all(|written| !written), "{at:?} comes twice");
        self.written[at.clone()].fill(true);
        at
    }
}

/// Converts offsets that were already checked against an object in memory.
fn range(range: Range<u64>) -> Range<usize> {
    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
}

impl GuestSink for Array {
    type Error = Error;

    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        assert!(!bytes.is_empty());
        let at = self.write(guest.0..guest.0 + bytes.len() as u64);
        self.disk[at].copy_from_slice(&bytes);
        Ok(())
    }

    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        assert!(guest.is_multiple_of(self.cluster));
        assert!(!bytes.is_empty());
        self.write(guest.0..(guest.0 + self.cluster).min(self.disk.len() as u64));
        self.compressed.insert(guest, bytes);
        Ok(())
    }

    fn park_unit(&mut self, host: Host, pieces: &[Bytes]) -> Result<(), Error> {
        assert!(host.is_multiple_of(self.unit));
        let bytes = pieces.concat();
        assert!(!bytes.is_empty() && bytes.len() as u64 <= self.unit);
        let before = self.parked.insert(host, bytes.into());
        assert!(before.is_none(), "unit {host:#x} is parked twice");
        Ok(())
    }

    fn read_parked(&mut self, host: Host) -> Result<Bytes, Error> {
        let bytes = self.parked.get(&host);
        Ok(bytes.expect("only parked units are asked for").clone())
    }

    fn drop_parked(&mut self, host: Host) -> Result<(), Error> {
        let forgotten = self.parked.remove(&host);
        assert!(forgotten.is_some(), "unit {host:#x} was not parked");
        Ok(())
    }
}
