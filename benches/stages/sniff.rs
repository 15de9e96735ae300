//! Detects the codec and format of a source. This happens once per import, so it only must not be
//! absurdly slow.

use std::hint::black_box;

use benches::{Clusters, Codec, Kind, qcow2};
use codec::decode;
use criterion::Criterion;
use diskimage::qcow2::Qcow2Header;
use diskimage::{DETECT_BYTES, Format};

use crate::{Result, group};

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let data = Kind::Text.data(1 << 20);
    let mut group = group(criterion, "sniff", decode::SNIFF_BYTES);
    for codec in Codec::ALL {
        let packed = codec.compress(&data)?;
        let head = packed.slice(..decode::SNIFF_BYTES.min(packed.len()));
        group.bench_function(format!("{}/text", codec.name()), |bencher| {
            bencher.iter(|| decode::sniff_codec(black_box(&head)));
        });
    }
    let image = qcow2(&data, Clusters::Plain)?;
    group.bench_function("format/text", |bencher| {
        bencher.iter(|| Format::detect(black_box(&image[..DETECT_BYTES])));
    });
    group.bench_function("qcow2-header/text", |bencher| {
        bencher.iter(|| Qcow2Header::parse(black_box(&image[..DETECT_BYTES])));
    });
    group.finish();
    Ok(())
}
