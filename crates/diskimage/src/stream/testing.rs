//! A sink that is an array, both routes of an image into it, and checks that all formats share.

use std::collections::BTreeMap;
use std::io::Read;

use bytes::Bytes;
use flate2::read::{DeflateDecoder, ZlibDecoder};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::{
    ClusterCompression, CompressedClusters, Error, Findings, Format, Guest, GuestSink, HeadFacts,
    Host, Image, ImageChecker, ImageMemoryLimit, ImageStream, MapBuilder, TableConsumer,
};

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

/// The disk, and the units that are parked.
pub(crate) struct Array {
    pub(crate) disk: Vec<u8>,
    pub(crate) parked: BTreeMap<Host, Bytes>,
    pub(crate) most_parked: usize,
    clusters: Option<CompressedClusters>,
}

impl Array {
    fn new(facts: &HeadFacts) -> Self {
        let disk = vec![0; at(facts.virtual_size)];
        Self { disk, parked: BTreeMap::new(), most_parked: 0, clusters: facts.clusters }
    }
}

impl GuestSink for Array {
    type Error = Error;

    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.disk[at(guest.0)..][..bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    /// Skips damaged clusters of qcow2. Like QEMU, accepts a grain of VMDK if it has a valid
    /// checksum, is not longer than a grain and covers the rest of the disk.
    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        let clusters = self.clusters.unwrap();
        let rest = &mut self.disk[at(guest.0)..];
        let needed = rest.len().min(at(clusters.size));
        let target = &mut rest[..needed];
        if clusters.compression == ClusterCompression::Deflate {
            DeflateDecoder::new(&bytes[..]).read_exact(target).ok();
            return Ok(());
        }
        let failed =
            |reason| Error::CompressedCluster { guest, cluster_size: clusters.size, reason };
        let mut inflated = Vec::new();
        let decoder = ZlibDecoder::new(&bytes[..]);
        (decoder.take(clusters.size + 1).read_to_end(&mut inflated))
            .map_err(|error| failed(error.to_string()))?;
        match inflated.get(..needed) {
            Some(bytes) if inflated.len() <= at(clusters.size) => target.copy_from_slice(bytes),
            _ => return Err(failed(format!("{} bytes", inflated.len()))),
        }
        Ok(())
    }

    fn park_unit(&mut self, host: Host, pieces: &[Bytes]) -> Result<(), Error> {
        self.parked.insert(host, pieces.concat().into());
        self.most_parked = self.most_parked.max(self.parked.len());
        Ok(())
    }

    fn read_parked(&mut self, host: Host) -> Result<Bytes, Error> {
        Ok(self.parked[&host].clone())
    }

    fn drop_parked(&mut self, host: Host) -> Result<(), Error> {
        self.parked.remove(&host).unwrap();
        Ok(())
    }
}

/// Passes an image once, in chunks of `chunk` bytes.
pub(crate) fn one_pass(format: Format, image: &[u8], chunk: usize) -> Result<Array, Error> {
    let opened = Image::open(format, image)?;
    let mut sink = Array::new(&opened.head_facts());
    let mut stream = ImageStream::one_pass(opened, ImageMemoryLimit(u64::MAX))?;
    for piece in image.chunks(chunk.max(1)) {
        stream.push(Bytes::copy_from_slice(piece), &mut sink)?;
    }
    stream.finish(&mut sink)?;
    Ok(sink)
}

/// Reads the map of an image first, and then passes only the bytes that it needs.
pub(crate) fn ranged(format: Format, image: &[u8], chunk: usize) -> Result<Array, Error> {
    let opened = Image::open(format, image)?;
    let mut sink = Array::new(&opened.head_facts());
    let mut map = MapBuilder::new(opened, image.len() as u64, ImageMemoryLimit(u64::MAX))?;
    feed(&mut map, |start, length| image[at(start)..at(start + length)].to_vec())?;
    let mut stream = map.into_stream();
    while let Some(needed) = stream.next_needed() {
        let start = at(needed.0);
        if start >= image.len() {
            break;
        }
        stream.skip_to(needed);
        let end = (start + chunk.max(1)).min(image.len());
        stream.push(Bytes::copy_from_slice(&image[start..end]), &mut sink)?;
    }
    stream.finish(&mut sink)?;
    Ok(sink)
}

/// Gives `consumer` all tables that it wants.
fn feed(
    consumer: &mut impl TableConsumer,
    read: impl Fn(u64, u64) -> Vec<u8>,
) -> Result<(), Error> {
    loop {
        let tables = consumer.next_tables()?;
        if tables.is_empty() {
            return Ok(());
        }
        for table in tables {
            let range = table.host_range();
            consumer.add_table(&table, &read(range.start.0, range.end - range.start))?;
        }
    }
}

/// Checks a qcow2 image with this memory. `read` returns a length of it at an offset.
pub(crate) fn check(
    image_bytes: u64,
    memory: u64,
    read: impl Fn(u64, u64) -> Vec<u8>,
) -> Result<Findings, Error> {
    let head = Image::open(Format::Qcow2, &read(0, image_bytes.min(64 << 10)))?;
    let mut checker = ImageChecker::new(head, image_bytes, ImageMemoryLimit(memory));
    feed(&mut checker, read)?;
    Ok(checker.finish_check())
}

/// Checks that both routes give `disk`, and that nothing stays parked.
pub(crate) fn check_routes(
    format: Format,
    image: &[u8],
    disk: &[u8],
    chunk: usize,
) -> Result<(), TestCaseError> {
    prop_assert!(ranged(format, image, chunk).unwrap().disk == disk);
    let passed = one_pass(format, image, chunk).unwrap();
    prop_assert!(passed.disk == disk && passed.parked.is_empty());
    Ok(())
}

/// Checks that a prefix of the image fails, unless only bytes are missing that the disk does not
/// need.
pub(crate) fn check_prefix(
    format: Format,
    image: &[u8],
    disk: &[u8],
    cut: Index,
) -> Result<(), TestCaseError> {
    let cut = cut.index(image.len());
    for route in [one_pass, ranged] {
        if let Ok(sink) = route(format, &image[..cut], 1000) {
            prop_assert!(sink.disk == disk, "the first {cut} bytes");
        }
    }
    Ok(())
}

/// Checks that a damaged image neither panics nor hangs. The array takes memory for the whole disk,
/// so larger disks are only opened.
pub(crate) fn check_survival(format: Format, image: &[u8]) {
    let facts = Image::open(format, image).map(|image| image.head_facts());
    if facts.is_ok_and(|facts| facts.virtual_size < 1 << 26) {
        drop(one_pass(format, image, 700));
        drop(ranged(format, image, 700));
    }
}
