//! `cdi-cloner`: sends a volume to an upload server.
//!
//! One program with two faces: subcommands for people, and the start-up script and the program of CDI's cloner pod.

use std::process::ExitCode;

use cloner::{cli, pod};
use program::env::ProcessEnv;
use program::program_mode;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    // The script looks at no arguments; a question for help or the version is answered all the same.
    let asks = matches!(
        program_mode::program_arguments().first().and_then(|first| first.to_str()),
        Some("-h" | "--help" | "-V" | "--version")
    );
    if pod::is_script(&name) && !asks {
        return pod::main(&[], &ProcessEnv);
    }
    program_mode::run_program(pod::MODE_VARIABLE, cli::names_subcommand, cli::main, pod::main)
}
