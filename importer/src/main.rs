//! `cdi-importer`: brings a disk image from a server or file onto a disk.
//!
//! One program with several faces: subcommands for people, the environment of CDI's importer pod, and Forklift's populators, which it
//! is when it has their names.

use std::process::ExitCode;

use importer::populator::Populator;
use importer::{cli, pod};
use program::env::ProcessEnv;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    if let Some(populator) = Populator::from_program_name(&name) {
        return populator.main(&program::program_mode::program_arguments(), &ProcessEnv);
    }
    program::program_mode::run_program(pod::SOURCE_VARIABLE, cli::names_subcommand, cli::main, pod::main)
}
