//! `cdi-uploadproxy`: the front door of a cluster for uploads.
//!
//! One program with two faces: subcommands for people, and the environment of CDI's upload proxy.

use std::process::ExitCode;

use uploadproxy::{cli, pod};

fn main() -> ExitCode {
    app::face::run(pod::KEY_VARIABLE, cli::main, pod::main)
}
