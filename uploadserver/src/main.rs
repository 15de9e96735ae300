//! `cdi-uploadserver`: receives one disk image over HTTPS and writes it to a disk.
//!
//! The program runs in two modes: subcommands on the command line, and the environment of CDI's
//! upload pod.

use std::process::ExitCode;

use uploadserver::{cli, pod};

/// jemalloc can return an upload's memory to the system when the upload has ended. With glibc, a
/// map of 11 million clusters left 131 MiB in small free blocks, and the next upload was killed at
/// a limit of 256 MiB. The cost of jemalloc is 10 % more CPU time for a raw upload, 9 % more for a
/// qcow2 upload, and 3 to 5 MiB more memory at the peak. The wall time does not change.
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
