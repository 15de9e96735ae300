//! Decodes one layer of compression. Throughput counts decompressed bytes.

use std::cell::LazyCell;
use std::num::NonZeroUsize;

use benches::{Codec, Kind};
use bytes::Bytes;
use codec::decode::{self, DecodeLimits};
use criterion::Criterion;
use stream::chunks::ChunkStream;

use crate::{ONE_AND_TWO, Result, done, group};

const DATA_BYTES: usize = 8 << 20;
/// The size of one read from a fast socket.
const CHUNK_BYTES: usize = 64 << 10;

struct Pieces(Bytes);

impl ChunkStream for Pieces {
    fn next_chunk(&mut self) -> std::result::Result<Option<Bytes>, stream::Error> {
        let length = CHUNK_BYTES.min(self.0.len());
        Ok((length > 0).then(|| self.0.split_to(length)))
    }
}

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let mut group = group(criterion, "decode", DATA_BYTES);
    for codec in Codec::ALL {
        for kind in Kind::ALL {
            // Made only if this benchmark is selected.
            let packed = LazyCell::new(|| done(pack(codec, kind)));
            group.bench_function(format!("{}/{}", codec.name(), kind.name()), |bencher| {
                let packed = LazyCell::force(&packed);
                bencher.iter(|| done(decode_all(packed, NonZeroUsize::MIN)));
            });
        }
    }
    let packed = LazyCell::new(|| done(pack(Codec::XzBlocks, Kind::Text)));
    for threads in ONE_AND_TWO {
        let name = format!("{}-{threads}-threads/text", Codec::XzBlocks.name());
        group.bench_function(name, |bencher| {
            let packed = LazyCell::force(&packed);
            bencher.iter(|| done(decode_all(packed, threads)));
        });
    }
    group.finish();
    Ok(())
}

fn pack(codec: Codec, kind: Kind) -> Result<Bytes> {
    Ok(codec.compress(&kind.data(DATA_BYTES))?)
}

/// Decodes everything, with chunks in any order, as the writer accepts them.
fn decode_all(packed: &Bytes, threads: NonZeroUsize) -> Result<()> {
    let limits = DecodeLimits { threads, ..DecodeLimits::default() };
    let mut decoded = decode::open_layers(Box::new(Pieces(packed.clone())), &limits)?;
    let mut bytes = 0;
    while let Some((_offset, chunk)) = decoded.stream.next_placed(bytes)? {
        bytes += chunk.len() as u64;
    }
    assert_eq!(bytes, DATA_BYTES as u64);
    Ok(())
}
