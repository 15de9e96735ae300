//! `cdi-uploadproxy`: the entry point for uploads into a cluster.
//!
//! On a command line, the program prints information about itself. In the environment of CDI's
//! upload proxy, it serves.

use std::process::ExitCode;

use uploadproxy::{cli, pod};

/// jemalloc returns the memory of many uploads to the system when they have ended. Of the 41 MiB
/// that 500 slow uploads took, glibc kept 32 MiB, while jemalloc keeps 8 MiB at the same CPU cost.
/// mimalloc kept all of it and took 1.5 times the CPU time. `.cargo/config.toml` sets how soon
/// memory is returned.
///
/// Tests that do not measure memory do without: building jemalloc takes 50 seconds of CPU time, and
/// `make`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(not(any(debug_assertions, feature = "jemalloc")))]
compile_error!("a release needs jemalloc, which gives back memory: build with --features jemalloc");

fn main() -> ExitCode {
    program::program_mode::run_program(
        pod::KEY_VARIABLE,
        cli::names_subcommand,
        cli::main,
        pod::main,
    )
}
