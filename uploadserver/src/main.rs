//! `cdi-uploadserver`: receives one disk image over HTTPS and writes it to a disk.
//!
//! One program with two faces: subcommands for people, and the environment of CDI's upload pod.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;
use uploadserver::{cli, pod};

/// Memory of an upload can be given back when the upload has ended. Of a map of 11 million
/// clusters, glibc kept 131 MiB in small free blocks, so that the next upload was killed at a
/// limit of 256 MiB. The price: 1.10 times the CPU seconds of a raw upload and 1.09 times those
/// of a qcow2 one, no difference in wall time, 3 to 5 MiB more at the peak.
#[global_allocator]
static MEMORY: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    program::program_mode::run_program(pod::KEY_VARIABLE, cli::names_subcommand, cli::main, pod::main)
}
