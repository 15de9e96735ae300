//! Inflating clusters and writing them to a temporary file, without syncing it; figures are bytes of the disk.

use std::cell::LazyCell;
use std::num::NonZeroUsize;
use std::path::Path;

use benches::{CLUSTER_BYTES, Clusters, Kind};
use bytes::Bytes;
use criterion::Criterion;
use datapath::target::{self, Disk, with_writer};
use diskimage::qcow2::Compression;
use tokio_util::sync::CancellationToken;

use crate::{Result, done, group};

const DISK_BYTES: usize = 32 << 20;

/// A cluster as the image stores it.
enum Stored {
    Plain(Bytes),
    Compressed(Bytes),
}

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut group = group(criterion, "writer", DISK_BYTES);
    for clusters in Clusters::ALL {
        for kind in Kind::ALL {
            // Made only if the bench is asked for.
            let stored = LazyCell::new(|| done(store(&kind.data(DISK_BYTES), clusters)));
            group.bench_function(format!("{}/{}", clusters.name(), kind.name()), |bencher| {
                bencher.iter(|| done(write(folder.path(), clusters, &stored)));
            });
        }
    }
    group.finish();
    Ok(())
}

fn store(disk: &Bytes, clusters: Clusters) -> Result<Vec<Stored>> {
    (0..disk.len())
        .step_by(CLUSTER_BYTES)
        .map(|start| {
            let plain = disk.slice(start..start + CLUSTER_BYTES);
            Ok(match clusters.compress(&plain)? {
                Some(packed) => Stored::Compressed(packed.into()),
                None => Stored::Plain(plain),
            })
        })
        .collect()
}

/// The disk is dropped uncommitted, which removes the file.
fn write(folder: &Path, clusters: Clusters, stored: &[Stored]) -> Result<()> {
    let target = target::Options {
        path: folder.join("disk"),
        available: u64::MAX,
        size: None,
        preallocate: false,
        direct: false,
        overwrite: true,
        mode: None,
    };
    let size = Some(DISK_BYTES as u64);
    let disk = Disk::open(&target, size)?;
    let settings = target::Clusters {
        compression: match clusters {
            Clusters::Plain | Clusters::Deflate => Compression::Deflate,
            Clusters::Zstd => Compression::Zstd,
        },
        size: CLUSTER_BYTES as u64,
    };
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    with_writer(
        &disk,
        Some(settings),
        size,
        threads,
        &CancellationToken::new(),
        |writer| {
            for (index, cluster) in stored.iter().enumerate() {
                let offset = (index * CLUSTER_BYTES) as u64;
                match cluster {
                    Stored::Plain(bytes) => writer.data(offset, bytes.clone())?,
                    Stored::Compressed(bytes) => writer.compressed(offset, bytes.clone())?,
                }
            }
            Ok(())
        },
    )?;
    Ok(())
}
