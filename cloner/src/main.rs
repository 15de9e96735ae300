//! `cdi-cloner`: sends a volume to an upload server.
//!
//! The program has two modes: a command line with subcommands for people, and CDI's cloner pod. In
//! the pod it replaces both the start-up script and the program that the script starts.

use std::process::ExitCode;

use cloner::{cli, pod};
use program::env::ProcessEnv;
use program::program_mode;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    // CDI's script ignores its arguments, but here a request for help or the version is still
    // answered.
    let asks = matches!(
        program_mode::program_arguments().first().and_then(|first| first.to_str()),
        Some("-h" | "--help" | "-V" | "--version")
    );
    if pod::is_script(&name) && !asks {
        return pod::main(&[], &ProcessEnv);
    }
    program_mode::run_program(pod::MODE_VARIABLE, cli::names_subcommand, cli::main, pod::main)
}
