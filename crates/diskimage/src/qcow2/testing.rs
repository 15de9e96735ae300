//! A header and an in-memory sink for tests.

use std::collections::BTreeMap;
use std::io::Read;

use bytes::Bytes;
use flate2::read::DeflateDecoder;

use super::header::Qcow2Header;
use crate::stream::testing;
use crate::{ClusterCompression, Error, Format, Guest, GuestSink, HeadFacts, Host, Image};

/// Creates a version 3 header for tests.
pub(crate) fn header(cluster_bits: u32) -> Qcow2Header {
    Qcow2Header {
        version: 3,
        virtual_size: 1 << 30,
        cluster_bits,
        compression: ClusterCompression::Deflate,
        extended_l2: false,
        l1_entries: 2,
        l1_size: 2,
        l1_offset: Host(1 << cluster_bits),
        refcount_table_offset: Host(2 << cluster_bits),
        refcount_table_bytes: 1 << cluster_bits,
        refcount_order: 4,
        snapshots: 0,
        snapshot_table_offset: Host(0),
        bitmap_count: 0,
        bitmaps: None,
        dirty: false,
        is_delta: false,
        corrupt: false,
    }
}

/// A sink that writes to an array and counts the parked units.
pub(crate) struct Array {
    pub(crate) disk: Vec<u8>,
    cluster: usize,
    pub(crate) parked: BTreeMap<Host, Bytes>,
    pub(crate) most_parked: usize,
}

impl Array {
    fn new(facts: &HeadFacts) -> Self {
        let bytes = |number: u64| usize::try_from(number).unwrap();
        Self {
            disk: vec![0; bytes(facts.virtual_size)],
            cluster: facts.clusters.map_or(0, |clusters| bytes(clusters.size)),
            parked: BTreeMap::new(),
            most_parked: 0,
        }
    }
}

impl GuestSink for Array {
    type Error = Error;

    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        let at = usize::try_from(guest.0).unwrap();
        self.disk[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        let at = usize::try_from(guest.0).unwrap();
        let end = self.disk.len().min(at + self.cluster);
        // Damaged clusters are skipped.
        DeflateDecoder::new(&bytes[..]).read_exact(&mut self.disk[at..end]).ok();
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

/// Converts a qcow2 image in one pass, in chunks of `chunk` bytes.
pub(crate) fn one_pass(image: &[u8], chunk: usize) -> Result<Array, Error> {
    one_pass_of(Format::Qcow2, image, chunk)
}

/// Like [`one_pass`], for an image of any format.
pub(crate) fn one_pass_of(format: Format, image: &[u8], chunk: usize) -> Result<Array, Error> {
    let opened = Image::open(format, image)?;
    let sink = Array::new(&opened.head_facts());
    testing::one_pass(opened, image, chunk, sink)
}

/// Converts a qcow2 image in ranged mode, skipping the bytes that are not needed.
pub(crate) fn ranged(image: &[u8], chunk: usize) -> Result<Array, Error> {
    ranged_of(Format::Qcow2, image, chunk)
}

/// Like [`ranged`], for an image of any format.
pub(crate) fn ranged_of(format: Format, image: &[u8], chunk: usize) -> Result<Array, Error> {
    let opened = Image::open(format, image)?;
    let sink = Array::new(&opened.head_facts());
    testing::ranged(opened, image, chunk, sink)
}
