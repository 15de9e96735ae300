//! Compares the writer with an array in memory: any extents, in any order, on any kind of target.

use std::num::NonZeroUsize;

use crate::common::{file, make_dirty, noise};
use bytes::Bytes;
use datapath::disk::{CacheMode, Disk, DiskOptions, with_writer};
use diskimage::{ClusterCompression, CompressedClusters};
use proptest::prelude::*;
use testkit::loopdev::LoopDevice;
use tokio_util::sync::CancellationToken;

/// Disks extend well beyond the first MiB, which is held back, and beyond one batch of the writer.
const MAX_SECTORS: u64 = 6 << 11;
const SECTOR: u64 = 512;

/// The content of a part of the disk.
#[derive(Debug, Clone, Copy)]
enum Content {
    /// A part that is not written.
    Hole,
    Zeros,
    Noise(u64),
    /// Mostly zeros, with a byte of data now and then.
    Sprinkled(u64),
}

/// The parts of a disk, in the order in which they are written.
#[derive(Debug, Clone)]
struct Plan {
    size: u64,
    extents: Vec<(u64, u64, Content)>,
}

impl Plan {
    fn bytes(content: Content, length: u64) -> Vec<u8> {
        let length = usize::try_from(length).unwrap();
        match content {
            Content::Hole | Content::Zeros => vec![0; length],
            Content::Noise(seed) => noise(length, seed),
            Content::Sprinkled(seed) => {
                let mut bytes = vec![0; length];
                let step = usize::try_from(seed % 9000).unwrap() + 1;
                bytes.iter_mut().step_by(step).for_each(|byte| *byte = 1);
                bytes
            }
        }
    }

    /// Returns the expected disk.
    fn model(&self) -> Vec<u8> {
        let mut disk = vec![0; usize::try_from(self.size).unwrap()];
        for (offset, length, content) in &self.extents {
            let bytes = Self::bytes(*content, *length);
            disk[usize::try_from(*offset).unwrap()..][..bytes.len()].copy_from_slice(&bytes);
        }
        disk
    }

    /// Writes the disk with the writer under test.
    fn write(&self, target: &DiskOptions, virtual_size: Option<u64>) {
        let disk = Disk::open(target, virtual_size).unwrap();
        let stop = CancellationToken::new();
        with_writer(&disk, None, virtual_size, threads(), &stop, |writer| {
            for (offset, length, content) in &self.extents {
                // A disk of unknown size comes as a stream, which has no holes.
                if virtual_size.is_none() || !matches!(content, Content::Hole) {
                    writer.add_data(*offset, Self::bytes(*content, *length).into())?;
                }
            }
            writer.zero_until(self.size)
        })
        .unwrap();
        disk.resize(self.size, None).unwrap();
        disk.commit(self.size, None).unwrap();
    }
}

fn threads() -> NonZeroUsize {
    NonZeroUsize::new(3).unwrap()
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        2 => Just(Content::Hole),
        1 => Just(Content::Zeros),
        4 => (1u64..).prop_map(Content::Noise),
        2 => (1u64..).prop_map(Content::Sprinkled),
    ]
}

/// Disks divided at bytes, sectors and pages, with their parts in random order.
fn plan() -> impl Strategy<Value = Plan> {
    let cut =
        (any::<prop::sample::Index>(), prop_oneof![Just(1u64), Just(512), Just(4096), Just(65536)]);
    let parts = prop::collection::vec((cut, content()), 1..40);
    (1..=MAX_SECTORS, parts)
        .prop_flat_map(|(sectors, parts)| {
            let size = sectors * SECTOR;
            let place = |index: prop::sample::Index, unit: u64| {
                let at = index.index(usize::try_from(size).unwrap()) as u64;
                at - at % unit
            };
            let mut cuts: Vec<u64> =
                parts.iter().map(|((index, unit), _)| place(*index, *unit)).collect();
            cuts.extend([0, size]);
            cuts.sort_unstable();
            cuts.dedup();
            let extents: Vec<_> = cuts
                .windows(2)
                .zip(parts.iter().cycle())
                .map(|(pair, (_, content))| (pair[0], pair[1] - pair[0], *content))
                .collect();
            (Just(size), Just(extents).prop_shuffle())
        })
        .prop_map(|(size, extents)| Plan { size, extents })
}

/// Compares without printing megabytes on failure.
fn assert_equal(actual: &[u8], expected: &[u8]) {
    assert_eq!(actual.len(), expected.len());
    let different = actual.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(different, None, "the first byte that differs");
}

fn cache() -> impl Strategy<Value = CacheMode> {
    prop::sample::select(vec![CacheMode::Auto, CacheMode::Direct, CacheMode::Page])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "slow: waits 16 s"]
    fn a_file_equals_the_model(plan in plan(), is_known: bool, preallocate: bool, cache in cache()) {
        // On a real filesystem instead of in memory, to test direct I/O.
        let folder = tempfile::tempdir().unwrap();
        let target = DiskOptions { preallocate, cache, ..file(&folder.path().join("disk")) };
        plan.write(&target, is_known.then_some(plan.size));
        assert_equal(&std::fs::read(&target.path).unwrap(), &plan.model());
    }
}

/// Writes many plans onto one device, which is filled with other bytes before each.
#[test]
#[ignore = "slow: waits 8 s"]
fn a_device_equals_the_model() {
    for sector_size in [512, 4096] {
        let folder = tempfile::tempdir().unwrap();
        let device = LoopDevice::new(folder.path(), MAX_SECTORS * SECTOR + (1 << 20), sector_size);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 24,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let strategy = (plan(), any::<bool>(), cache());
        let result = runner.run(&strategy, |(plan, preallocate, cache)| {
            make_dirty(&device);
            let target = DiskOptions { preallocate, cache, ..file(device.path()) };
            plan.write(&target, Some(plan.size));
            let disk = std::fs::read(device.path()).unwrap();
            assert_equal(&disk[..usize::try_from(plan.size).unwrap()], &plan.model());
            Ok(())
        });
        result.unwrap();
    }
}

/// Returns a cluster of a compressed image in this codec.
fn packed(codec: ClusterCompression, bytes: &[u8]) -> Bytes {
    match codec {
        ClusterCompression::Zstd => zstd::bulk::compress(bytes, 1).unwrap().into(),
        ClusterCompression::Deflate | ClusterCompression::Zlib => {
            let mut compressor =
                libdeflater::Compressor::new(libdeflater::CompressionLvl::fastest());
            let mut packed = vec![0; compressor.zlib_compress_bound(bytes.len())];
            let length = if codec == ClusterCompression::Zlib {
                compressor.zlib_compress(bytes, &mut packed)
            } else {
                compressor.deflate_compress(bytes, &mut packed)
            };
            packed.truncate(length.unwrap());
            packed.into()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Includes a last cluster that is longer than the rest of the disk.
    #[test]
    fn compressed_clusters_equal_the_model(
        clusters in prop::collection::vec((content(), any::<bool>()), 1..200),
        cluster_bits in 9u32..17,
        codec in prop::sample::select(vec![ClusterCompression::Deflate, ClusterCompression::Zlib, ClusterCompression::Zstd]),
        missing_sectors in 0u64..128,
        preallocate: bool,
        order: prop::sample::Index,
    ) {
        let size = 1u64 << cluster_bits;
        let virtual_size = clusters.len() as u64 * size - missing_sectors * SECTOR % size;
        let mut expected = Vec::new();
        for (content, _) in &clusters {
            expected.extend(Plan::bytes(*content, size));
        }

        let folder = tempfile::tempdir().unwrap();
        let target = DiskOptions { preallocate, ..file(&folder.path().join("disk")) };
        let disk = Disk::open(&target, Some(virtual_size)).unwrap();
        let settings = Some(CompressedClusters { compression: codec, size });
        with_writer(&disk, settings, Some(virtual_size), threads(), &CancellationToken::new(), |writer| {
            let mut indices: Vec<usize> = (0..clusters.len()).collect();
            indices.rotate_left(order.index(clusters.len()));
            for index in indices {
                let offset = index as u64 * size;
                let length = size.min(virtual_size - offset);
                match clusters[index] {
                    (Content::Hole, _) => {}
                    (content, true) => {
                        writer.add_compressed(offset, packed(codec, &Plan::bytes(content, size)))?;
                    }
                    (content, false) => {
                        let plain = Bytes::from(Plan::bytes(content, size));
                        writer.add_data(offset, plain.slice(..usize::try_from(length).unwrap()))?;
                    }
                }
            }
            Ok(())
        }).unwrap();
        disk.resize(virtual_size, None).unwrap();
        disk.commit(virtual_size, None).unwrap();
        expected.truncate(usize::try_from(virtual_size).unwrap());
        assert_equal(&std::fs::read(&target.path).unwrap(), &expected);
    }
}

#[test]
fn a_compressed_cluster_of_unknown_compression_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&file(&folder.path().join("disk")), Some(1 << 20)).unwrap();
    let stop = CancellationToken::new();
    let error = with_writer(&disk, None, Some(1 << 20), threads(), &stop, |writer| {
        writer.add_compressed(4096, Bytes::from_static(b"x"))
    })
    .unwrap_err();
    assert!(error.to_string().contains("does not state how its clusters"), "{error}");
}
