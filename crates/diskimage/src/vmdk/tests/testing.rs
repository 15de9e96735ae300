//! A sink that is an array, and both routes into it.

use std::collections::BTreeMap;
use std::io::Read;

use bytes::Bytes;
use flate2::read::ZlibDecoder;

use crate::stream::testing;
use crate::{Error, Format, Guest, GuestSink, Host, Image};

/// The disk and the parked grains.
pub(super) struct Array {
    pub(super) disk: Vec<u8>,
    parked: BTreeMap<Host, Bytes>,
    pub(super) most_parked: usize,
    grain: usize,
}

impl GuestSink for Array {
    type Error = Error;

    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        let at = usize::try_from(guest.0).unwrap();
        self.disk[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    /// Like QEMU, accepts a stream with a valid checksum that is not longer than a grain and
    /// covers the rest of the disk.
    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        let failed = |reason: String| Error::CompressedCluster {
            guest,
            cluster_size: self.grain as u64,
            reason,
        };
        let mut inflated = Vec::new();
        ZlibDecoder::new(&bytes[..])
            .take(self.grain as u64 + 1)
            .read_to_end(&mut inflated)
            .map_err(|error| failed(error.to_string()))?;
        let at = usize::try_from(guest.0).unwrap();
        let end = self.disk.len().min(at + self.grain);
        match inflated.get(..end - at) {
            Some(bytes) if inflated.len() <= self.grain => {
                self.disk[at..end].copy_from_slice(bytes)
            }
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

fn open(image: &[u8]) -> Result<(Image, Array), Error> {
    let opened = Image::open(Format::Vmdk, image)?;
    let facts = opened.head_facts();
    let array = Array {
        // Limited, because a damaged header can claim any size.
        disk: vec![0; usize::try_from(facts.virtual_size.min(64 << 20)).unwrap()],
        parked: BTreeMap::new(),
        most_parked: 0,
        grain: usize::try_from(facts.cluster_size.unwrap()).unwrap(),
    };
    Ok((opened, array))
}

/// Runs an image through the one-pass route, in chunks of `chunk` bytes.
pub(super) fn one_pass(image: &[u8], chunk: usize) -> Result<Array, Error> {
    let (opened, sink) = open(image)?;
    let sink = testing::one_pass(opened, image, chunk, sink)?;
    assert!(sink.parked.is_empty());
    Ok(sink)
}

/// Runs an image through the ranged route, which skips bytes that are not needed.
pub(super) fn ranged(image: &[u8], chunk: usize) -> Result<Array, Error> {
    let (opened, sink) = open(image)?;
    testing::ranged(opened, image, chunk, sink)
}
