//! Finds zeros in the data that is to be written.

use std::hint::black_box;

use benches::Kind;
use criterion::Criterion;
use stream::zeros::{data_runs, is_zero};

use crate::{Result, group};

/// More than a batch of the writer, less than a cache.
const DATA_BYTES: usize = 4 << 20;
const PIECE_BYTES: usize = 64 << 10;

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let mut group = group(criterion, "zero", DATA_BYTES);
    // Only zeros: for other data, `is_zero` stops at the first block.
    let zeros = Kind::Zeros.data(DATA_BYTES);
    group.bench_function("is-zero/zeros", |bencher| {
        bencher.iter(|| is_zero(black_box(&zeros)));
    });
    for kind in Kind::ALL {
        let data = kind.data(DATA_BYTES);
        group.bench_function(format!("data-runs/{}", kind.name()), |bencher| {
            bencher.iter(|| data_runs(0, black_box(&data).chunks(PIECE_BYTES)));
        });
    }
    group.finish();
    Ok(())
}
