//! Ownership of the target: one writer at a time, and only our own files are removed or replaced.

mod deltas;
mod directories;
mod disks;
mod faults;
mod gate;
mod kinds;
mod output;
mod place;
mod same;
mod writer;

fn importer<const N: usize>(arguments: [&str; N]) -> testkit::process::Program {
    testkit::process::Program::new(crate::BINARY).args(arguments)
}
