//! `cdi-uploadserver`: receives one disk image over HTTPS and writes it to a disk.
//!
//! One program with two faces: subcommands for people, and the environment of CDI's upload pod.

use std::process::ExitCode;

use uploadserver::{cli, pod};

fn main() -> ExitCode {
    app::face::run(pod::KEY_VARIABLE, cli::main, pod::main)
}
