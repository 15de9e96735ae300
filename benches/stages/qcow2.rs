//! Turns an image's bytes into extents without inflating or writing them. Throughput counts the
//! bytes of the disk.

use std::cell::LazyCell;

use benches::{CLUSTER_BYTES, Clusters, Kind, qcow2};
use bytes::Bytes;
use criterion::Criterion;
use diskimage::{
    Error, Format, Guest, GuestSink, HEAD_BYTES, Host, Image, ImageMemoryLimit, ImageStream,
    MapBuilder, TableConsumer,
};

use crate::{Result, done, group};

/// Small, because the cost is per cluster.
const DISK_BYTES: usize = 64 << 20;
const CHUNK_BYTES: usize = 64 << 10;

/// A sink that only counts the bytes.
#[derive(Default)]
struct Count(usize);

impl GuestSink for Count {
    type Error = Error;

    fn write_data(&mut self, _guest: Guest, bytes: Bytes) -> std::result::Result<(), Error> {
        self.0 += bytes.len();
        Ok(())
    }

    fn write_compressed(&mut self, _guest: Guest, _bytes: Bytes) -> std::result::Result<(), Error> {
        self.0 += CLUSTER_BYTES;
        Ok(())
    }

    fn park_unit(&mut self, _host: Host, _pieces: &[Bytes]) -> std::result::Result<(), Error> {
        Ok(())
    }

    fn read_parked(&mut self, offset: Host) -> std::result::Result<Bytes, Error> {
        // Never called: in an image that begins with its tables nothing is read back.
        let what = "a cluster";
        Err(Error::RefcountContradiction { what, offset })
    }

    fn drop_parked(&mut self, _host: Host) -> std::result::Result<(), Error> {
        Ok(())
    }
}

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let mut group = group(criterion, "qcow2", DISK_BYTES);
    for clusters in Clusters::ALL {
        // Made only if one of its benchmarks is selected.
        let image = LazyCell::new(|| {
            done(qcow2(&Kind::Text.data(DISK_BYTES), clusters).map_err(Into::into))
        });
        group.bench_function(format!("one-pass-{}/text", clusters.name()), |bencher| {
            let image = LazyCell::force(&image);
            bencher.iter(|| done(one_pass(image)));
        });
        group.bench_function(format!("ranged-{}/text", clusters.name()), |bencher| {
            let image = LazyCell::force(&image);
            bencher.iter(|| done(ranged(image)));
        });
    }
    group.finish();
    Ok(())
}

fn one_pass(image: &Bytes) -> Result<()> {
    push_all(ImageStream::one_pass(open(image)?, ImageMemoryLimit(u64::MAX))?, image)
}

fn ranged(image: &Bytes) -> Result<()> {
    let mut map = MapBuilder::new(open(image)?, image.len() as u64, ImageMemoryLimit(u64::MAX))?;
    loop {
        let tables = map.next_tables()?;
        if tables.is_empty() {
            break;
        }
        for table in tables {
            let range = usize::try_from(table.host_range().start.0)?
                ..usize::try_from(table.host_range().end.0)?;
            map.add_table(&table, &image[range])?;
        }
    }
    push_all(map.into_stream(), image)
}

fn open(image: &Bytes) -> Result<Image> {
    Ok(Image::open(Format::Qcow2, &image[..HEAD_BYTES.min(image.len())])?)
}

fn push_all(mut stream: ImageStream, image: &Bytes) -> Result<()> {
    let mut sink = Count::default();
    let mut rest = image.clone();
    while !rest.is_empty() {
        stream.push(rest.split_to(CHUNK_BYTES.min(rest.len())), &mut sink)?;
    }
    stream.finish(&mut sink)?;
    assert_eq!(sink.0, DISK_BYTES);
    Ok(())
}
