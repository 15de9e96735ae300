//! A sink that is an array, and checks what a sink may rely on.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use diskimage::Error;
use diskimage::qcow2::{Header, MapBuilder, Sink, Stream};

use crate::Pieces;

/// Larger disks only make the fuzzer slow.
const MAX_DISK_BYTES: u64 = 1 << 20;

/// The guest's disk. Compressed clusters are kept as they are: inflating is another stage's business.
#[derive(Debug, PartialEq, Eq)]
pub struct Array {
    cluster: u64,
    disk: Vec<u8>,
    written: Vec<bool>,
    compressed: BTreeMap<u64, Bytes>,
    parked: BTreeMap<u64, Bytes>,
}

impl Array {
    /// An empty disk for an image with `header`; `None` if it would be larger than is worth the time.
    pub fn new(header: &Header) -> Option<Self> {
        let size = usize::try_from(header.virtual_size.min(MAX_DISK_BYTES + 1)).ok()?;
        (header.virtual_size <= MAX_DISK_BYTES).then(|| Self {
            cluster: header.cluster_size(),
            disk: vec![0; size],
            written: vec![false; size],
            compressed: BTreeMap::new(),
            parked: BTreeMap::new(),
        })
    }

    /// Reads the image in one pass.
    pub fn one_pass(header: &Header, pieces: Pieces) -> Option<Result<Self, Error>> {
        let mut array = Self::new(header)?;
        Some(array.read_one_pass(header, pieces).map(|()| array))
    }

    fn read_one_pass(&mut self, header: &Header, pieces: Pieces) -> Result<(), Error> {
        let mut stream = Stream::one_pass(header.clone())?;
        for piece in pieces {
            stream.push(piece, self)?;
        }
        stream.finish(self)?;
        assert!(self.parked.is_empty(), "clusters are still parked at the end");
        Ok(())
    }

    /// Reads the map of the image first, then what it maps.
    pub fn map_first(header: &Header, pieces: Pieces) -> Option<Result<Self, Error>> {
        let mut array = Self::new(header)?;
        Some(array.read_map_first(header, pieces).map(|()| array))
    }

    fn read_map_first(&mut self, header: &Header, mut pieces: Pieces) -> Result<(), Error> {
        let image = pieces.rest().clone();
        let mut map = MapBuilder::new(header.clone(), image.len() as u64);
        let l1 = map.l1_range()?;
        for table in map.l2_tables(&image[range(l1)])? {
            let bytes = image.slice(range(table.offset..table.offset + header.cluster_size()));
            map.add_l2(table, &bytes)?;
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

    /// Every guest byte comes at most once, and lies on the disk.
    fn write(&mut self, at: Range<u64>) -> Range<usize> {
        assert!(
            at.end <= self.disk.len() as u64,
            "{at:?} is beyond the disk of {} bytes",
            self.disk.len()
        );
        let at = range(at);
        assert!(
            self.written[at.clone()].iter().all(|written| !written),
            "{at:?} comes twice"
        );
        self.written[at.clone()].fill(true);
        at
    }
}

/// Offsets that were checked against something in memory.
fn range(range: Range<u64>) -> Range<usize> {
    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
}

impl Sink for Array {
    type Error = Error;

    fn data(&mut self, guest: u64, bytes: Bytes) -> Result<(), Error> {
        assert!(!bytes.is_empty());
        let at = self.write(guest..guest + bytes.len() as u64);
        self.disk[at].copy_from_slice(&bytes);
        Ok(())
    }

    fn compressed(&mut self, guest: u64, bytes: Bytes) -> Result<(), Error> {
        assert!(guest.is_multiple_of(self.cluster));
        assert!(!bytes.is_empty());
        self.write(guest..(guest + self.cluster).min(self.disk.len() as u64));
        self.compressed.insert(guest, bytes);
        Ok(())
    }

    fn park(&mut self, host: u64, pieces: &[Bytes]) -> Result<(), Error> {
        assert!(host.is_multiple_of(self.cluster));
        let bytes = pieces.concat();
        assert!(!bytes.is_empty() && bytes.len() as u64 <= self.cluster);
        let before = self.parked.insert(host, bytes.into());
        assert!(before.is_none(), "cluster {host:#x} is parked twice");
        Ok(())
    }

    fn parked(&mut self, host: u64) -> Result<Bytes, Error> {
        let bytes = self.parked.get(&host);
        Ok(bytes.expect("only parked clusters are asked for").clone())
    }

    fn forget(&mut self, host: u64) -> Result<(), Error> {
        let forgotten = self.parked.remove(&host);
        assert!(forgotten.is_some(), "cluster {host:#x} was not parked");
        Ok(())
    }
}
