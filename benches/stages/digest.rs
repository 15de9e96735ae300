//! Digests of received data.

use benches::Kind;
use criterion::Criterion;
use stream::digest::{DigestAlgorithm, RunningDigest};

use crate::{Result, group};

const DATA_BYTES: usize = 8 << 20;

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let data = Kind::Noise.data(DATA_BYTES);
    let mut group = group(criterion, "digest", DATA_BYTES);
    for algorithm in [
        DigestAlgorithm::Md5,
        DigestAlgorithm::Sha1,
        DigestAlgorithm::Sha256,
        DigestAlgorithm::Sha512,
    ] {
        group.bench_function(format!("{algorithm}/noise"), |bencher| {
            bencher.iter(|| {
                let mut digest = RunningDigest::new(algorithm);
                digest.update(&data);
                digest.finish_digest()
            });
        });
    }
    group.finish();
    Ok(())
}
