//! `cdi-importer`: writes a disk image from a server or a file to a disk.
//!
//! The program has several modes: a command line with subcommands for people, CDI's importer pod,
//! which is configured by environment variables, and Forklift's populators. It runs as a populator
//! if it is started under a populator's name.

use std::process::ExitCode;

use importer::populator::Populator;
use importer::{cli, pod};
use program::env::ProcessEnv;

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    if let Some(populator) = Populator::from_program_name(&name) {
        return populator.main(&program::program_mode::program_arguments(), &ProcessEnv);
    }
    program::program_mode::run_program(
        pod::SOURCE_VARIABLE,
        cli::names_subcommand,
        cli::main,
        pod::main,
    )
}
