//! Ownership of the target: one writer at a time, and only our own files are removed or replaced.

mod deltas;
mod directories;
mod disks;
mod faults;
mod filesystems;
mod gate;
mod kinds;
mod output;
mod place;
mod same;
mod writer;

fn importer<const N: usize>(arguments: [&str; N]) -> testkit::process::Program {
    testkit::process::Program::new(crate::BINARY).args(arguments)
}

/// An importer as in a pod whose file system has this root.
fn pod(root: &std::path::Path) -> testkit::process::Program {
    importer(["-alsologtostderr", "-v=3"])
        .env("CDI_WORKERS_TEST_ROOT", root)
        .env("CDI_WORKERS_TEST_METRICS_ADDR", "127.0.0.1:0")
        .env("PREALLOCATION", "false")
}

/// A pod that makes an empty disk of `size`.
fn blank_pod(place: &place::Place, size: &str) -> testkit::process::Program {
    pod(place.root()).env("IMPORTER_SOURCE", "none").env("IMPORTER_IMAGE_SIZE", size)
}
