//! `cdi-importer`: brings a disk image from a server or file onto a disk.
//!
//! One program with two faces: subcommands for people, and the environment of CDI's importer pod.

use std::ffi::OsString;
use std::process::ExitCode;

use app::face::Face;
use daemon::env::ProcessEnv;
use importer::{cli, pod};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match Face::choose(&arguments, &ProcessEnv, pod::SOURCE_VARIABLE) {
        Face::CommandLine => cli::main(&arguments),
        Face::Pod => pod::main(&arguments, &ProcessEnv),
    }
}
