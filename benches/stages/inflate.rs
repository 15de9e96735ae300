//! Inflates clusters with one and with two threads while they are written to a file in memory.
//! Throughput counts the bytes of the disk.

use std::cell::LazyCell;
use std::num::NonZeroUsize;

use benches::{CLUSTER_BYTES, Clusters, Kind};
use bytes::Bytes;
use criterion::Criterion;
use datapath::disk::{self, CacheMode, Disk, with_writer};
use diskimage::ClusterCompression;
use tokio_util::sync::CancellationToken;

use crate::{ONE_AND_TWO, Result, done, group, place};

const DISK_BYTES: usize = 32 << 20;

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let folder = place::in_memory()?;
    let target = place::target(folder.path().join("disk"), CacheMode::Auto);
    let mut group = group(criterion, "inflate", DISK_BYTES);
    for (clusters, compression) in [
        (Clusters::Deflate, ClusterCompression::Deflate),
        (Clusters::Zstd, ClusterCompression::Zstd),
    ] {
        // Only text: images do not store zeros and do not compress noise. Made only if this
        // benchmark is selected.
        let packed = LazyCell::new(|| done(pack(&Kind::Text.data(DISK_BYTES), clusters)));
        for threads in ONE_AND_TWO {
            let name = format!("{}-{threads}-threads/text", clusters.name());
            group.bench_function(name, |bencher| {
                let packed = LazyCell::force(&packed);
                bencher.iter(|| done(inflate(&target, compression, threads, packed)));
            });
        }
    }
    group.finish();
    Ok(())
}

fn pack(disk: &[u8], clusters: Clusters) -> Result<Vec<Bytes>> {
    disk.chunks(CLUSTER_BYTES)
        .map(|cluster| {
            let packed = clusters.compress(cluster)?.ok_or("a cluster did not get smaller")?;
            Ok(packed.into())
        })
        .collect()
}

/// Inflates all clusters to a new disk. The disk is dropped uncommitted, which removes its file.
fn inflate(
    target: &disk::DiskOptions,
    compression: ClusterCompression,
    threads: NonZeroUsize,
    packed: &[Bytes],
) -> Result<()> {
    let size = Some(DISK_BYTES as u64);
    let disk = Disk::open(target, size)?;
    let clusters = diskimage::CompressedClusters { compression, size: CLUSTER_BYTES as u64 };
    let stop = CancellationToken::new();
    with_writer(&disk, Some(clusters), size, threads, &stop, |writer| {
        for (index, cluster) in packed.iter().enumerate() {
            writer.add_compressed((index * CLUSTER_BYTES) as u64, cluster.clone())?;
        }
        Ok(())
    })?;
    Ok(())
}
