//! `cdi-importer`: brings a disk image from a server or file onto a disk.
//!
//! One program with two faces: subcommands for people, and the environment of CDI's importer pod.

use std::process::ExitCode;

use importer::{cli, pod};

fn main() -> ExitCode {
    app::face::run(pod::SOURCE_VARIABLE, cli::main, pod::main)
}
