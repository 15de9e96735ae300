//! The whole import, from a server on loopback to a file in memory, where no slow disk hides the
//! other costs. Throughput counts the bytes of the disk. The server is a part of this program and
//! shares its cores, so compare the results only with each other. `side-by-side` compares with
//! other programs.

use std::cell::LazyCell;
use std::sync::Arc;

use benches::{Clusters, Codec, Kind, qcow2};
use bytes::Bytes;
use criterion::Criterion;
use datapath::disk::{self, CacheMode};
use datapath::options::WriteOptions;
use datapath::transfer::transfer_image;
use fetch::Network;
use fetch::http::{HttpConfig, HttpSource};
use stream::options::{PayloadKind, ReadOptions};
use testkit::certs;
use testkit::origin::{Origin, Script};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::transfer::writing;
use crate::{Result, done, group, network_runtime, place};

const DISK_BYTES: usize = 64 << 20;

/// The served objects, and the content of their disks.
const CASES: [(Case, Kind); 7] = [
    (Case::Raw, Kind::Zeros),
    (Case::Raw, Kind::Text),
    (Case::Raw, Kind::Noise),
    (Case::Gzip, Kind::Text),
    (Case::Image(Clusters::Plain), Kind::Text),
    (Case::Image(Clusters::Deflate), Kind::Text),
    (Case::Image(Clusters::Zstd), Kind::Text),
];

/// The form in which the disk is served.
#[derive(Clone, Copy)]
enum Case {
    Raw,
    Gzip,
    Image(Clusters),
}

impl Case {
    fn name(self) -> String {
        match self {
            Self::Raw => "raw".into(),
            Self::Gzip => "raw-gzip".into(),
            Self::Image(clusters) => format!("qcow2-{}", clusters.name()),
        }
    }

    fn object(self, disk: Bytes) -> Result<Bytes> {
        Ok(match self {
            Self::Raw => disk,
            Self::Gzip => Codec::Gzip.compress(&disk)?,
            Self::Image(clusters) => qcow2(&disk, clusters)?,
        })
    }
}

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let folder = place::in_memory()?;
    let target = place::target(folder.path().join("disk"), CacheMode::Auto);
    let runtime = network_runtime()?;
    let writing = writing();
    let mut group = group(criterion, "http", DISK_BYTES);
    for (case, kind) in CASES {
        // Made only if this benchmark is selected.
        let origin = LazyCell::new(|| done(serve(case, kind)));
        group.bench_function(format!("{}/{}", case.name(), kind.name()), |bencher| {
            let url = origin.url("/disk");
            bencher.iter(|| done(import(&url, &runtime, &target, &writing)));
        });
    }
    group.finish();
    Ok(())
}

fn serve(case: Case, kind: Kind) -> Result<Origin> {
    let object = case.object(kind.data(DISK_BYTES))?;
    Ok(Origin::start(Script::new(object))?)
}

fn import(
    url: &str,
    runtime: &Runtime,
    target: &disk::DiskOptions,
    writing: &WriteOptions,
) -> Result<()> {
    let tls = certs::distrustful_client_config()?;
    let network = Network::new(runtime.handle().clone(), CancellationToken::new(), tls);
    let source = HttpSource::open(HttpConfig::new(url, &Arc::new(network))?)?;
    let report =
        transfer_image(&source, PayloadKind::default(), target, &ReadOptions::default(), writing)?;
    assert_eq!(report.virtual_size, DISK_BYTES as u64);
    Ok(())
}
