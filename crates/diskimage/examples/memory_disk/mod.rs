//! A disk in memory: what the examples convert images to.

use std::collections::BTreeMap;
use std::io::Read;

use bytes::Bytes;
use diskimage::{Guest, GuestSink, Host, Image, ImageMemoryLimit, ImageStream};

/// Memory that the map of an image may take: 24 bytes for each compressed cluster, or for each run
/// of other clusters.
const MAP_BYTES: u64 = 16 << 20;

/// Result of an example. The image or one of its compressed clusters may be invalid.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Collects the bytes of the guest's disk.
struct MemoryDisk {
    bytes: Vec<u8>,
    cluster_bytes: u64,
    /// Parts of the image that arrived before the table that maps them.
    parked: BTreeMap<Host, Vec<u8>>,
}

impl MemoryDisk {
    fn write(&mut self, guest: Guest, bytes: &[u8]) -> Result<()> {
        let start = usize::try_from(guest.0)?;
        // A compressed last cluster may be longer than the rest of the disk.
        let end = self.bytes.len().min(start + bytes.len());
        let target =
            self.bytes.get_mut(start..end).ok_or("an offset beyond the end of the disk")?;
        target.copy_from_slice(&bytes[..end - start]);
        Ok(())
    }
}

impl GuestSink for MemoryDisk {
    type Error = Box<dyn std::error::Error>;

    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<()> {
        self.write(guest, &bytes)
    }

    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<()> {
        // qcow2 images of compression type 0 contain raw deflate streams.
        let mut cluster = Vec::new();
        flate2::read::DeflateDecoder::new(&*bytes)
            .take(self.cluster_bytes)
            .read_to_end(&mut cluster)?;
        self.write(guest, &cluster)
    }

    fn park_unit(&mut self, host: Host, pieces: &[Bytes]) -> Result<()> {
        self.parked.insert(host, pieces.concat());
        Ok(())
    }

    fn read_parked(&mut self, host: Host) -> Result<Bytes> {
        let unit = self.parked.get(&host).ok_or("a unit that was never parked")?;
        Ok(Bytes::copy_from_slice(unit))
    }

    fn drop_parked(&mut self, host: Host) -> Result<()> {
        self.parked.remove(&host);
        Ok(())
    }
}

/// Returns the disk in `image`, whose bytes are `file`. They pass once, from the first to the last.
/// A server that receives the file would push each chunk as it arrives.
pub(crate) fn convert(image: Image, file: Vec<u8>) -> Result<Vec<u8>> {
    let facts = image.head_facts();
    let mut disk = MemoryDisk {
        bytes: vec![0; usize::try_from(facts.virtual_size)?],
        cluster_bytes: facts.clusters.map_or(0, |clusters| clusters.size),
        parked: BTreeMap::new(),
    };
    let mut stream = ImageStream::one_pass(image, ImageMemoryLimit(MAP_BYTES))?;
    stream.push(Bytes::from(file), &mut disk)?;
    stream.finish(&mut disk)?;
    Ok(disk.bytes)
}
