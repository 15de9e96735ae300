//! Turns the pieces of a network library into aligned chunks without their zeros.

use benches::Kind;
use bytes::Bytes;
use criterion::Criterion;
use stream::copier::ChunkCopier;

use crate::{Result, group};

/// Smaller than a cache, because the kernel has just copied data that comes from a socket.
const DATA_BYTES: usize = 4 << 20;
/// The size of one read from a fast socket.
const PIECE_BYTES: usize = 64 << 10;

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let mut group = group(criterion, "copy", DATA_BYTES);
    for kind in Kind::ALL {
        let data = kind.data(DATA_BYTES);
        group.bench_function(kind.name(), |bencher| bencher.iter(|| copy(&data)));
    }
    group.finish();
    Ok(())
}

/// Copies all data. Chunks are dropped at once, so that their buffers are reused, as they are when
/// the target keeps up.
fn copy(data: &Bytes) {
    let mut copier = ChunkCopier::new(0);
    let mut bytes = 0;
    for piece in data.chunks(PIECE_BYTES) {
        copier.push(piece);
        bytes += drain(&mut copier);
    }
    copier.flush();
    bytes += drain(&mut copier);
    assert_eq!(bytes, DATA_BYTES);
}

fn drain(copier: &mut ChunkCopier) -> usize {
    std::iter::from_fn(|| copier.pop()).map(|copied| copied.bytes.len()).sum()
}
