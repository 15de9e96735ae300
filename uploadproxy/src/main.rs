//! `cdi-uploadproxy`: the front door of a cluster for uploads.
//!
//! A command line prints what the program is; with the environment of CDI's upload proxy it serves.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;
use uploadproxy::{cli, pod};

/// The memory of many uploads goes back when they have ended: of 41 MiB that 500 slow ones took, glibc kept 32 and this keeps 8, at
/// the same cost of processor (mimalloc kept all, and cost a half more). `.cargo/config.toml` says how soon.
#[global_allocator]
static MEMORY: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    program::program_mode::run_program(pod::KEY_VARIABLE, cli::names_subcommand, cli::main, pod::main)
}
