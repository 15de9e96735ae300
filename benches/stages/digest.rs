//! Digests of what arrives.

use benches::Kind;
use criterion::Criterion;
use datapath::digest::{Algorithm, Digest};

use crate::{Result, group};

const DATA_BYTES: usize = 8 << 20;

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let data = Kind::Noise.data(DATA_BYTES);
    let mut group = group(criterion, "digest", DATA_BYTES);
    for algorithm in [
        Algorithm::Md5,
        Algorithm::Sha1,
        Algorithm::Sha256,
        Algorithm::Sha512,
    ] {
        group.bench_function(format!("{algorithm}/noise"), |bencher| {
            bencher.iter(|| {
                let mut digest = Digest::new(algorithm);
                digest.update(&data);
                digest.finish()
            });
        });
    }
    group.finish();
    Ok(())
}
