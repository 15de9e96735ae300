//! How fast each stage of the data path is, and all of them together. Names are `stage/what/kind of data`.

mod archive;
mod bridge;
mod decode;
mod delta;
mod digest;
mod http;
mod inflate;
mod pack;
mod place;
mod qcow2;
mod snappy;
mod sniff;
mod transfer;
mod writer;
mod zero;

use std::num::NonZeroUsize;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use tokio::runtime::{self, Runtime};

/// What a step of a bench cannot go on without.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How many threads a stage is measured with if it can use several; more cores are not to be had everywhere.
const ONE_AND_TWO: [NonZeroUsize; 2] = [NonZeroUsize::MIN, NonZeroUsize::MIN.saturating_add(1)];

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

/// As many threads as the importer uses here.
fn threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Where sources read the network: one thread, as in the importer.
fn network_runtime() -> Result<Runtime> {
    let mut builder = runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(1).enable_all().build()?)
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
        pack::run,
        bridge::run,
        digest::run,
        decode::run,
        qcow2::run,
        zero::run,
        inflate::run,
        writer::run,
        transfer::run,
        delta::run,
        snappy::run,
        archive::run,
        http::run,
    ] {
        done(stage(&mut criterion));
    }
    criterion.final_summary();
}
