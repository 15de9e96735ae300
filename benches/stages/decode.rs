//! Undoing one layer of compression; figures are decompressed bytes.

use std::cell::LazyCell;

use benches::{Codec, Kind};
use bytes::Bytes;
use criterion::Criterion;
use datapath::chunks::Chunks;
use datapath::decode::{self, Limits};

use crate::{Result, done, group};

const DATA_BYTES: usize = 8 << 20;
/// What one read of a fast socket gives.
const CHUNK_BYTES: usize = 64 << 10;

struct Pieces(Bytes);

impl Chunks for Pieces {
    fn next_chunk(&mut self) -> std::result::Result<Option<Bytes>, datapath::Error> {
        let length = CHUNK_BYTES.min(self.0.len());
        Ok((length > 0).then(|| self.0.split_to(length)))
    }
}

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let mut group = group(criterion, "decode", DATA_BYTES);
    for codec in Codec::ALL {
        for kind in Kind::ALL {
            // Made only if the bench is asked for.
            let packed = LazyCell::new(|| done(codec.compress(&kind.data(DATA_BYTES)).map_err(Into::into)));
            group.bench_function(format!("{}/{}", codec.name(), kind.name()), |bencher| {
                bencher.iter(|| done(decode_all(packed.clone())));
            });
        }
    }
    group.finish();
    Ok(())
}

fn decode_all(packed: Bytes) -> Result<()> {
    let mut decoded = decode::open(Box::new(Pieces(packed)), &Limits::default())?;
    let mut bytes = 0;
    while let Some(chunk) = decoded.stream.next_chunk()? {
        bytes += chunk.len();
    }
    assert_eq!(bytes, DATA_BYTES);
    Ok(())
}
