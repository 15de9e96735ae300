//! A small writer of qcow2 images whose physical order is free, and a sink that is a plain array.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::header::Header;
use crate::stream::testing;
use crate::{Compression, Error, Format, Image, Sink};

/// A version 3 header for tests that need one.
pub(crate) fn header(cluster_bits: u32) -> Header {
    Header {
        version: 3,
        virtual_size: 1 << 30,
        cluster_bits,
        compression: Compression::Deflate,
        extended_l2: false,
        l1_entries: 2,
        l1_offset: 1 << cluster_bits,
        refcount_table_offset: 2 << cluster_bits,
        refcount_table_bytes: 1 << cluster_bits,
        refcount_order: 4,
        snapshots: 0,
        has_bitmaps: false,
        dirty: false,
        is_delta: false,
        corrupt: false,
    }
}

/// What a guest cluster of a test image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guest {
    Hole,
    ZeroAllocated,
    Data(u8),
}

pub(crate) const CLUSTER: usize = 512;
const PER_L2: usize = CLUSTER / 8;

/// An image of 512-byte clusters. `order` is a permutation key: host clusters after the header are placed by
/// ascending key (missing keys count as 0, ties keep the order metadata, L2, data).
pub(crate) fn image(guest: &[Guest], order: &[u16]) -> Vec<u8> {
    let l2_count = guest.len().div_ceil(PER_L2);
    let l1_clusters = (l2_count * 8).div_ceil(CLUSTER).max(1);
    let stored: Vec<usize> = (0..guest.len()).filter(|i| guest[*i] != Guest::Hole).collect();
    let count = 2 + l1_clusters + l2_count + stored.len() + 1;
    let blocks = (count + 40).div_ceil(CLUSTER / 2);

    // Units that move as one: refcount table, refcount blocks, L1 (contiguous), L2s, data.
    let mut units: Vec<(u16, usize)> = Vec::new();
    let mut lengths = vec![1usize];
    lengths.extend(std::iter::repeat_n(1, blocks));
    lengths.push(l1_clusters);
    lengths.extend(std::iter::repeat_n(1, l2_count + stored.len()));
    for (index, _) in lengths.iter().enumerate() {
        units.push((order.get(index).copied().unwrap_or(0), index));
    }
    units.sort();
    let mut place = vec![0usize; lengths.len()];
    let mut next = 1;
    for (_, index) in units {
        place[index] = next;
        next += lengths[index];
    }
    let mut file = vec![0u8; next * CLUSTER];
    let offset = |unit: usize| (place[unit] * CLUSTER) as u64;
    let (l1, l2, data) = (1 + blocks, 2 + blocks, 2 + blocks + l2_count);

    let mut put = |at: u64, bytes: &[u8]| {
        let at = usize::try_from(at).unwrap();
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(0, b"QFI\xfb\0\0\0\x03");
    put(20, &9u32.to_be_bytes());
    put(24, &((guest.len() * CLUSTER) as u64).to_be_bytes());
    put(36, &u32::try_from(l2_count).unwrap().to_be_bytes());
    put(40, &offset(l1).to_be_bytes());
    put(48, &offset(0).to_be_bytes());
    put(56, &1u32.to_be_bytes());
    put(96, &4u32.to_be_bytes());
    put(100, &104u32.to_be_bytes());
    for block in 0..blocks {
        put(offset(0) + block as u64 * 8, &offset(1 + block).to_be_bytes());
        for cluster in 0..CLUSTER / 2 {
            let used = block * (CLUSTER / 2) + cluster < next;
            put(
                offset(1 + block) + cluster as u64 * 2,
                &u16::from(used).to_be_bytes(),
            );
        }
    }
    for table in 0..l2_count {
        put(
            offset(l1) + table as u64 * 8,
            &(offset(l2 + table) | 1 << 63).to_be_bytes(),
        );
    }
    for (rank, index) in stored.iter().enumerate() {
        let host = offset(data + rank);
        let entry = match guest[*index] {
            Guest::ZeroAllocated => host | 1,
            _ => host,
        };
        put(
            offset(l2 + index / PER_L2) + (index % PER_L2) as u64 * 8,
            &(entry | 1 << 63).to_be_bytes(),
        );
        let fill = if let Guest::Data(byte) = guest[*index] {
            byte
        } else {
            0xee
        };
        put(host, &[fill; CLUSTER]);
    }
    file
}

/// The disk that an image of `guest` holds.
pub(crate) fn disk(guest: &[Guest]) -> Vec<u8> {
    guest
        .iter()
        .flat_map(|g| [if let Guest::Data(byte) = g { *byte } else { 0 }; CLUSTER])
        .collect()
}

/// A sink that is an array, and counts what it has to park.
pub(crate) struct Array {
    pub(crate) disk: Vec<u8>,
    pub(crate) parked: BTreeMap<u64, Bytes>,
    pub(crate) most_parked: usize,
}

impl Array {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            disk: vec![0; usize::try_from(size).unwrap()],
            parked: BTreeMap::new(),
            most_parked: 0,
        }
    }
}

impl Sink for Array {
    type Error = Error;

    fn data(&mut self, guest: u64, bytes: Bytes) -> Result<(), Error> {
        let at = usize::try_from(guest).unwrap();
        self.disk[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn compressed(&mut self, _guest: u64, _bytes: Bytes) -> Result<(), Error> {
        Ok(())
    }

    fn park(&mut self, host: u64, pieces: &[Bytes]) -> Result<(), Error> {
        self.parked.insert(host, pieces.concat().into());
        self.most_parked = self.most_parked.max(self.parked.len());
        Ok(())
    }

    fn parked(&mut self, host: u64) -> Result<Bytes, Error> {
        Ok(self.parked[&host].clone())
    }

    fn forget(&mut self, host: u64) -> Result<(), Error> {
        self.parked.remove(&host).unwrap();
        Ok(())
    }
}

/// Runs an image in chunks of `chunk` bytes through the one-pass route.
pub(crate) fn one_pass(image: &[u8], chunk: usize) -> Result<Array, Error> {
    one_pass_of(Format::Qcow2, image, chunk)
}

/// The same for an image of any format.
pub(crate) fn one_pass_of(format: Format, image: &[u8], chunk: usize) -> Result<Array, Error> {
    let opened = Image::open(format, image)?;
    let sink = Array::new(opened.facts().virtual_size);
    testing::one_pass(opened, image, chunk, sink)
}

/// Runs an image through the ranged route, skipping what is not needed.
pub(crate) fn ranged(image: &[u8], chunk: usize) -> Result<Array, Error> {
    ranged_of(Format::Qcow2, image, chunk)
}

/// The same for an image of any format.
pub(crate) fn ranged_of(format: Format, image: &[u8], chunk: usize) -> Result<Array, Error> {
    let opened = Image::open(format, image)?;
    let sink = Array::new(opened.facts().virtual_size);
    testing::ranged(opened, image, chunk, sink)
}
