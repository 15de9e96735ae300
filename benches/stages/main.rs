//! How fast each stage of the data path is, and all of them together. Names are `stage/codec/kind`.

mod decode;
mod digest;
mod qcow2;
mod sniff;
mod transfer;
mod writer;
mod zero;

use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};

/// What a step of a bench cannot go on without.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A group whose figures are bytes a second of `bytes`.
fn group<'c>(criterion: &'c mut Criterion, stage: &str, bytes: usize) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(stage);
    group.throughput(Throughput::Bytes(bytes as u64));
    group
}

/// Ends the program with a sentence: a figure of something that failed would be worse than none.
#[track_caller]
fn done<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("a stage failed: {error}"),
    }
}

fn main() {
    // Short: the spread between machines is larger than what more samples would tell.
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for stage in [
        sniff::run,
        decode::run,
        digest::run,
        zero::run,
        qcow2::run,
        writer::run,
        transfer::run,
    ] {
        done(stage(&mut criterion));
    }
    criterion.final_summary();
}
