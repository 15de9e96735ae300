//! Whose the target is: one writer at a time, and only what is ours is removed, replaced or called complete.

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

/// The program, with everything that it says.
fn importer<const N: usize>(arguments: [&str; N]) -> testkit::process::Program {
    testkit::process::Program::new(crate::BINARY).args(arguments)
}
