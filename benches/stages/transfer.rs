//! The whole data path without network and disk, from an object in memory to a file in memory.
//! Throughput counts the bytes of the disk.

use std::cell::LazyCell;

use benches::{Clusters, Codec, Kind, Memory, memory, qcow2};
use bytes::Bytes;
use criterion::Criterion;
use datapath::disk::CacheMode;
use datapath::options::WriteOptions;
use datapath::transfer::transfer_image;
use stream::options::{PayloadKind, ReadOptions};

use crate::{Result, done, group, place, threads};

const DISK_BYTES: usize = 16 << 20;

/// The form in which the object is stored and read.
#[derive(Clone, Copy)]
enum Case {
    Raw,
    Packed(Codec),
    Image { clusters: Clusters, ranged: bool },
}

impl Case {
    fn all() -> Vec<Self> {
        // Only fast codecs: with xz and bzip2 this would only measure their decoders.
        let packed = [Codec::Gzip, Codec::Zstd].map(Self::Packed);
        let one_pass = Clusters::ALL.map(|clusters| Self::Image { clusters, ranged: false });
        let ranged = Clusters::ALL.map(|clusters| Self::Image { clusters, ranged: true });
        [&[Self::Raw][..], &packed, &one_pass, &ranged].concat()
    }

    fn name(self) -> String {
        match self {
            Self::Raw => "raw".into(),
            Self::Packed(codec) => codec.name().into(),
            Self::Image { clusters, ranged } => {
                let route = if ranged { "ranged" } else { "one-pass" };
                format!("qcow2-{}-{route}", clusters.name())
            }
        }
    }

    fn source(self, disk: &Bytes) -> Result<Memory> {
        Ok(match self {
            Self::Raw => memory(disk, true),
            Self::Packed(codec) => memory(&codec.compress(disk)?, false),
            Self::Image { clusters, ranged } => memory(&qcow2(disk, clusters)?, ranged),
        })
    }
}

/// The importer's default settings.
pub(crate) fn writing() -> WriteOptions {
    WriteOptions { workers: threads(), ..WriteOptions::default() }
}

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let folder = place::in_memory()?;
    let target = place::target(folder.path().join("disk"), CacheMode::Auto);
    let (reading, writing) = (ReadOptions::default(), writing());
    let mut group = group(criterion, "transfer", DISK_BYTES);
    for kind in Kind::ALL {
        let disk = kind.data(DISK_BYTES);
        for case in Case::all() {
            // Made only if this benchmark is selected.
            let source = LazyCell::new(|| done(case.source(&disk)));
            group.bench_function(format!("{}/{}", case.name(), kind.name()), |bencher| {
                let source = LazyCell::force(&source);
                bencher.iter(|| {
                    done(
                        transfer_image(source, PayloadKind::default(), &target, &reading, &writing)
                            .map_err(Into::into),
                    )
                });
            });
        }
    }
    group.finish();
    Ok(())
}
