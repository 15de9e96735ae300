//! Applies changed ranges from memory to an existing disk. Throughput counts the bytes of the
//! ranges.

use benches::{Kind, Memory, memory};
use criterion::Criterion;
use datapath::delta::{DeltaBase, apply_delta};
use datapath::disk::DiskOptions;
use stream::changes::ChangedRanges;
use stream::options::ReadOptions;

use crate::transfer::writing;
use crate::{Result, done, group, place};

const DISK_BYTES: u64 = 1 << 30;

/// One percent of the disk.
const CHANGED_BYTES: usize = 10 << 20;

/// Divides `bytes` into ranges of `length` that are spread over the disk.
fn scattered(bytes: &[u8], length: usize) -> Result<Memory> {
    let count = (bytes.len() / length) as u64;
    let (step, length) = (DISK_BYTES / count / 4096 * 4096, length as u64);
    let ranges = (0..count).map(|number| number * step..number * step + length);
    let changes = ChangedRanges::new(DISK_BYTES, ranges).ok_or("ranges that overlap")?;
    Ok(Memory { changes: Some(changes), ..memory(bytes, false) })
}

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let folder = place::in_memory()?;
    let base = DeltaBase {
        disk: DiskOptions::new(&folder.path().join("disk"), u64::MAX),
        name: None,
        may_be_larger: true,
    };
    std::fs::File::create(&base.disk.path)?.set_len(DISK_BYTES)?;
    let (reading, writing) = (ReadOptions::default(), writing());
    let mut group = group(criterion, "delta", CHANGED_BYTES);
    // A block of the guest's file system, a block of VMware's tracking, and the longest read from
    // a vCenter.
    for kib in [4, 64, 2048] {
        for kind in [Kind::Noise, Kind::Zeros] {
            let source = scattered(&kind.data(CHANGED_BYTES), kib << 10)?;
            group.bench_function(format!("{kib}-kib/{}", kind.name()), |bencher| {
                bencher.iter(|| {
                    done(apply_delta(&source, &base, &reading, &writing).map_err(Into::into))
                });
            });
        }
    }
    group.finish();
    Ok(())
}
