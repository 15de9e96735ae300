//! `cdi-uploadproxy`: the front door of a cluster for uploads.
//!
//! One program with two faces: subcommands for people, and the environment of CDI's upload proxy.

use std::ffi::OsString;
use std::process::ExitCode;

use app::face::Face;
use daemon::env::ProcessEnv;
use uploadproxy::{cli, pod};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match Face::choose(&arguments, &ProcessEnv, pod::KEY_VARIABLE) {
        Face::CommandLine => cli::main(&arguments),
        Face::Pod => pod::main(&arguments, &ProcessEnv),
    }
}
