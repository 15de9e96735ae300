//! The whole data path, from an object in memory to a synced temporary file; figures are bytes of the disk.

use std::cell::LazyCell;

use benches::{Clusters, Codec, Kind, Memory, qcow2};
use bytes::Bytes;
use criterion::Criterion;
use datapath::target;
use datapath::transfer::{self, transfer};

use crate::{Result, done, group};

const DISK_BYTES: usize = 16 << 20;

/// How the object is stored and read.
#[derive(Clone, Copy)]
enum Case {
    Raw,
    Packed(Codec),
    Image { clusters: Clusters, ranged: bool },
}

impl Case {
    fn all() -> Vec<Self> {
        let packed = Codec::ALL.map(Self::Packed);
        let one_pass = Clusters::ALL.map(|clusters| Self::Image {
            clusters,
            ranged: false,
        });
        let ranged = Clusters::ALL.map(|clusters| Self::Image {
            clusters,
            ranged: true,
        });
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
            Self::Raw => Memory::new(disk.clone(), true),
            Self::Packed(codec) => Memory::new(codec.compress(disk)?, false),
            Self::Image { clusters, ranged } => Memory::new(qcow2(disk, clusters)?, ranged),
        })
    }
}

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let target = target::Options {
        path: folder.path().join("disk"),
        available: u64::MAX,
        size: None,
        preallocate: false,
        direct: false,
        overwrite: true,
        mode: None,
    };
    let options = transfer::Options {
        workers: std::thread::available_parallelism()?,
        ..transfer::Options::default()
    };
    let mut group = group(criterion, "transfer", DISK_BYTES);
    for kind in Kind::ALL {
        let disk = kind.data(DISK_BYTES);
        for case in Case::all() {
            // Made only if the bench is asked for.
            let source = LazyCell::new(|| done(case.source(&disk)));
            group.bench_function(format!("{}/{}", case.name(), kind.name()), |bencher| {
                bencher.iter(|| done(transfer(&*source, &target, &options).map_err(Into::into)));
            });
        }
    }
    group.finish();
    Ok(())
}
