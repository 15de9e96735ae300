//! `cdi-cloner`: sends a volume to an upload server.
//!
//! One program with two faces: subcommands for people, and the start-up script and the program of CDI's cloner pod.

use std::ffi::OsString;
use std::process::ExitCode;

use app::face::Face;
use cloner::{cli, pod};
use daemon::env::ProcessEnv;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    let arguments: Vec<OsString> = words.collect();
    // The script looks at no arguments; whoever asks the image what it is, is answered.
    let asks = matches!(
        arguments.first().and_then(|first| first.to_str()),
        Some("-h" | "--help" | "-V" | "--version")
    );
    if pod::is_script(&name) && !asks {
        return pod::main(&[], &ProcessEnv);
    }
    match Face::choose(&arguments, &ProcessEnv, pod::MODE_VARIABLE) {
        Face::CommandLine => cli::main(&arguments),
        Face::Pod => pod::main(&arguments, &ProcessEnv),
    }
}
