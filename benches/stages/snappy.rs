//! Clones of devices: decodes framed snappy, alone and while it is written to a disk in memory.
//! Throughput counts the bytes of the disk.

use std::cell::LazyCell;
use std::io::Write;

use benches::{Kind, memory};
use bytes::Bytes;
use codec::decode::{Codec, DecodeLimits, new_decoder};
use criterion::Criterion;
use datapath::disk::CacheMode;
use datapath::transfer::transfer_image;
use stream::chunks::ChunkStream;
use stream::options::{CompressionLayers, PayloadKind, ReadOptions};

use crate::{Result, done, group, place, transfer as whole};

const DISK_BYTES: usize = 16 << 20;

struct Whole(Option<Bytes>);

impl ChunkStream for Whole {
    fn next_chunk(&mut self) -> std::result::Result<Option<Bytes>, stream::Error> {
        Ok(self.0.take())
    }
}

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let folder = place::in_memory()?;
    let target = place::target(folder.path().join("disk"), CacheMode::Auto);
    let reading =
        ReadOptions { layers: CompressionLayers::Only(Codec::Snappy), ..ReadOptions::default() };
    let writing = whole::writing();
    let mut group = group(criterion, "snappy", DISK_BYTES);
    for kind in Kind::ALL {
        // Made only if one of its benchmarks is selected.
        let packed = LazyCell::new(|| done(pack(&kind.data(DISK_BYTES))));
        group.bench_function(format!("decode/{}", kind.name()), |bencher| {
            let packed = LazyCell::force(&packed);
            bencher.iter(|| done(decode(packed)));
        });
        group.bench_function(format!("clone/{}", kind.name()), |bencher| {
            let packed = LazyCell::force(&packed);
            let source = memory(packed, false);
            bencher.iter(|| {
                done(
                    transfer_image(&source, PayloadKind::RAW, &target, &reading, &writing)
                        .map_err(Into::into),
                )
            });
        });
    }
    group.finish();
    Ok(())
}

fn pack(data: &[u8]) -> Result<Bytes> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(data)?;
    Ok(encoder.into_inner()?.into())
}

fn decode(packed: &Bytes) -> Result<()> {
    let mut stream =
        new_decoder(Codec::Snappy, Box::new(Whole(Some(packed.clone()))), &DecodeLimits::default());
    let mut bytes = 0;
    while let Some(chunk) = stream.next_chunk()? {
        bytes += chunk.len();
    }
    assert_eq!(bytes, DISK_BYTES);
    Ok(())
}
