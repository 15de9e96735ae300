//! Measures the speed of each stage of the data path, and of all of them together. Benchmark names
//! are `stage/what/kind of data`.

mod archive;
mod bridge;
mod copy;
mod decode;
mod delta;
mod digest;
mod http;
mod inflate;
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

/// The result of a benchmark's preparation or step.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Numbers of threads for stages that can use several. More than two cores are not available
/// everywhere.
const ONE_AND_TWO: [NonZeroUsize; 2] = [NonZeroUsize::MIN, NonZeroUsize::MIN.saturating_add(1)];

/// Makes a group whose throughput counts `bytes` per iteration.
fn group<'c>(
    criterion: &'c mut Criterion,
    stage: &str,
    bytes: usize,
) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(stage);
    group.throughput(Throughput::Bytes(bytes as u64));
    group
}

/// Returns the value, or ends the program with an error message, because the result of a failed
/// step would be misleading.
#[track_caller]
fn done<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("a stage failed: {error}"),
    }
}

/// The number of threads that the importer would use on this machine.
fn threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// The runtime on which sources read from the network: one thread, as in the importer.
fn network_runtime() -> Result<Runtime> {
    let mut builder = runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(1).enable_all().build()?)
}

fn main() {
    // Short runs suffice: machines differ by more than further samples would reveal.
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for stage in [
        sniff::run,
        copy::run,
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
