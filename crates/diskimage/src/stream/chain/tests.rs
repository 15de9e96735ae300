//! Compares the merged map with a model that looks at each byte of the disk.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::layout::{AccessOrder, ImageCheck, LoadedTable};
use crate::{
    ClusterCompression, CompressedClusters, GuestSink, HeadFacts, Image, ImageMemoryLimit,
    TableConsumer,
};

const NO_LIMIT: ImageMemoryLimit = ImageMemoryLimit(u64::MAX);

/// How a cluster is stored. A compressed cluster of the tests is a single byte, which is repeated.
#[derive(Debug, Clone, Copy)]
enum Stored {
    Nowhere,
    Zero,
    Plain(u8),
    Compressed(u8),
}

/// An image of the tests: its clusters in the order of the disk, and where they are in the file.
#[derive(Debug, Clone)]
struct TestImage {
    virtual_size: u64,
    cluster: u64,
    clusters: Vec<Stored>,
    /// The order of the clusters in the file.
    order: Vec<usize>,
}

struct TestLayout {
    facts: HeadFacts,
    wants: Vec<(Host, u64, RangeRole, Guest)>,
    zeros: Vec<Range<Guest>>,
}

impl ImageLayout for TestLayout {
    fn into_check(self: Box<Self>, _image_length: u64) -> Box<dyn ImageCheck> {
        unreachable!("the chain does not check images")
    }

    fn head_facts(&self) -> &HeadFacts {
        &self.facts
    }

    fn initial_ranges(&mut self, _access: AccessOrder) -> Result<RangeBatch, Error> {
        let mut batch = RangeBatch::default();
        for (host, length, role, guest) in &self.wants {
            batch.push_data(*host, *length, *role, *guest);
        }
        Ok(batch)
    }

    fn parse_table(
        &mut self,
        _table: LoadedTable<'_>,
        _batch: &mut RangeBatch,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn zero_ranges(&self) -> &[Range<Guest>] {
        &self.zeros
    }
}

impl TestImage {
    /// The bytes of the file, and its map.
    fn build(&self) -> (Vec<u8>, MapBuilder) {
        let (mut file, mut wants, mut zeros) = (vec![0xEE; 7], Vec::new(), Vec::new());
        for index in &self.order {
            let guest = Guest(*index as u64 * self.cluster);
            let length = self.cluster.min(self.virtual_size - guest.0);
            let host = Host(file.len() as u64);
            match self.clusters[*index] {
                Stored::Nowhere => {}
                Stored::Zero => zeros.push(guest..guest + length),
                Stored::Plain(byte) => {
                    file.extend(vec![byte; usize::try_from(length).unwrap()]);
                    wants.push((host, length, RangeRole::SoleData, guest));
                }
                Stored::Compressed(byte) => {
                    file.push(byte);
                    // The stored length is rounded up, beyond the end of the file for the last.
                    wants.push((host, 5, RangeRole::Compressed, guest));
                }
            }
        }
        let clusters =
            CompressedClusters { compression: ClusterCompression::Deflate, size: self.cluster };
        let facts = HeadFacts {
            clusters: Some(clusters),
            ..HeadFacts::new(Format::Qcow2, self.virtual_size)
        };
        let image = Image::from_layout(Box::new(TestLayout { facts, wants, zeros }));
        let mut map = MapBuilder::new(image, file.len() as u64, NO_LIMIT).unwrap();
        assert!(map.next_tables().unwrap().is_empty());
        (file, map)
    }

    /// The byte of the disk at `at`; `None` if this image does not define it.
    fn byte_at(&self, at: u64) -> Option<u8> {
        if at >= self.virtual_size {
            return None;
        }
        match self.clusters[usize::try_from(at / self.cluster).unwrap()] {
            Stored::Nowhere => None,
            Stored::Zero => Some(0),
            Stored::Plain(byte) | Stored::Compressed(byte) => Some(byte),
        }
    }
}

/// The disk, and how often each of its bytes was written.
struct ChainSink<'c> {
    disk: Vec<u8>,
    written: Vec<u8>,
    clipped: &'c ClippedClusters,
    /// Offset in the stream and size of the clusters of each image.
    images: Vec<(Host, u64)>,
    position: Host,
}

impl ChainSink<'_> {
    fn write(&mut self, guest: Guest, bytes: &[u8]) {
        let at = usize::try_from(guest.0).unwrap();
        self.disk[at..at + bytes.len()].copy_from_slice(bytes);
        self.written[at..at + bytes.len()].iter_mut().for_each(|times| *times += 1);
    }
}

impl GuestSink for ChainSink<'_> {
    type Error = Error;

    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        self.write(guest, &bytes);
        Ok(())
    }

    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Error> {
        let (start, cluster) =
            *self.images.iter().rfind(|(start, _)| *start <= self.position).unwrap();
        let whole = guest..(guest + cluster).min(Guest(self.disk.len() as u64));
        let parts = self.clipped.visible_parts(start, guest).map_or(vec![whole], <[_]>::to_vec);
        for part in parts {
            let length = usize::try_from(part.end - part.start).unwrap();
            self.write(part.start, &vec![bytes[0]; length]);
        }
        Ok(())
    }
}

/// Restores the chain `raw` (if any) and `images`, oldest first, in pushes of at most `chunk`
/// bytes that lie in one image each.
fn restore(raw: Option<&[u8]>, images: &[TestImage], chunk: usize) -> (Vec<u8>, Vec<u8>) {
    let built: Vec<_> = images.iter().map(TestImage::build).collect();
    let mut files: Vec<Vec<u8>> = raw.map(<[u8]>::to_vec).into_iter().collect();
    let mut maps = Vec::new();
    for (file, map) in built {
        files.push(file);
        maps.push(map);
    }
    let starts: Vec<Host> = (0..files.len())
        .map(|index| Host(files[..index].iter().map(|file| file.len() as u64).sum()))
        .collect();
    let mut merged = ChainMap::new(NO_LIMIT, NO_LIMIT);
    for (map, start) in maps.into_iter().rev().zip(starts.iter().rev()) {
        merged.add_older(map, *start).unwrap();
    }
    if let Some(raw) = raw {
        merged.add_raw(raw.len() as u64, Host(0)).unwrap();
    }
    let (mut stream, clipped) = merged.into_stream().unwrap();
    let clusters = raw.map(|_| 0).into_iter().chain(images.iter().map(|image| image.cluster));
    let size = usize::try_from(images.last().unwrap().virtual_size).unwrap();
    let mut sink = ChainSink {
        disk: vec![0; size],
        written: vec![0; size],
        clipped: &clipped,
        images: starts.iter().copied().zip(clusters).collect(),
        position: Host(0),
    };
    let all = files.concat();
    let mut ends = starts[1..].iter().copied().chain([Host(all.len() as u64)]).collect::<Vec<_>>();
    while let Some(needed) = stream.next_needed() {
        stream.skip_to(needed);
        ends.retain(|end| *end > needed);
        let end = ends[0].min(needed + chunk as u64);
        let range = usize::try_from(needed.0).unwrap()..usize::try_from(end.0).unwrap();
        sink.position = needed;
        stream.push(Bytes::copy_from_slice(&all[range]), &mut sink).unwrap();
    }
    stream.finish(&mut sink).unwrap();
    (sink.disk, sink.written)
}

fn image(virtual_size: u64) -> impl Strategy<Value = TestImage> {
    let stored = prop_oneof![
        3 => Just(Stored::Nowhere),
        1 => Just(Stored::Zero),
        2 => (1u8..).prop_map(Stored::Plain),
        1 => (1u8..).prop_map(Stored::Compressed),
    ];
    prop_oneof![Just(16u64), Just(32), Just(64)].prop_flat_map(move |cluster| {
        let count = usize::try_from(virtual_size.div_ceil(cluster)).unwrap();
        let clusters = prop::collection::vec(stored.clone(), count);
        let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
        (clusters, order).prop_map(move |(clusters, order)| TestImage {
            virtual_size,
            cluster,
            clusters,
            order,
        })
    })
}

/// A chain whose disk never shrinks.
fn chain() -> impl Strategy<Value = Vec<TestImage>> {
    prop::collection::vec(1u64..24, 1..6).prop_flat_map(|mut sizes| {
        sizes.sort_unstable();
        sizes.into_iter().map(|size| image(size * 16)).collect::<Vec<_>>()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn each_byte_comes_once_from_the_newest_image_that_defines_it(
        images in chain(),
        raw in prop::option::of(1u64..10),
        chunk in 1usize..100,
    ) {
        // The raw disk is not larger than the oldest image.
        let raw = raw.map(|sectors| sectors.min(images[0].virtual_size / 16) * 16);
        let raw = raw.map(|bytes| (0..bytes).map(|at| at.to_le_bytes()[0] % 250 + 1).collect::<Vec<u8>>());
        let (disk, written) = restore(raw.as_deref(), &images, chunk);
        for (at, found) in disk.iter().enumerate() {
            let newest = images.iter().rev().find_map(|image| image.byte_at(at as u64));
            let of_raw = raw.as_ref().and_then(|raw| raw.get(at).copied());
            let expected = newest.or(of_raw);
            prop_assert_eq!(*found, expected.unwrap_or(0), "at {}", at);
            prop_assert_eq!(written[at], u8::from(expected.unwrap_or(0) != 0), "writes at {}", at);
        }
    }

    #[test]
    fn visible_parts_are_what_is_left(
        hidden in prop::collection::vec(0usize..200, 0..12),
        start in 0usize..200,
        length in 1usize..100,
    ) {
        let mut ends = hidden;
        ends.sort_unstable();
        ends.dedup();
        let covered: Vec<_> =
            ends.chunks_exact(2).map(|pair| Guest(pair[0] as u64)..Guest(pair[1] as u64)).collect();
        let range = Guest(start as u64)..Guest((start + length) as u64);
        let mut left = vec![false; 400];
        for part in visible_parts(&covered, range) {
            prop_assert!(part.start < part.end);
            (part.start.0..part.end.0).for_each(|at| left[usize::try_from(at).unwrap()] = true);
        }
        for (at, is_left) in left.iter().enumerate() {
            let is_hidden = covered.iter().any(|range| range.contains(&Guest(at as u64)));
            prop_assert_eq!(*is_left, (start..start + length).contains(&at) && !is_hidden, "{}", at);
        }
    }
}

/// An image of many clusters that are stored in reverse order, so that none can be merged.
fn scattered(clusters: usize) -> TestImage {
    TestImage {
        virtual_size: clusters as u64 * 16,
        cluster: 16,
        clusters: (0..clusters)
            .map(|at| if at % 2 == 0 { Stored::Plain(7) } else { Stored::Nowhere })
            .collect(),
        order: (0..clusters).rev().collect(),
    }
}

#[test]
fn a_chain_that_takes_too_much_memory_is_refused() {
    let (_, newest) = scattered(100_000).build();
    let mut merged = ChainMap::new(ImageMemoryLimit(1 << 20), NO_LIMIT);
    assert!(matches!(merged.add_older(newest, Host(0)), Err(Error::MapTooLarge { .. })));
    let (_, newest) = scattered(10_000).build();
    ChainMap::new(ImageMemoryLimit(1 << 20), NO_LIMIT).add_older(newest, Host(0)).unwrap();
}
