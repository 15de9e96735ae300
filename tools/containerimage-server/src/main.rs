//! `cdi-containerimage-server`: serves the disk in a user's container image to the importer in the
//! same pod.

use std::ffi::OsString;
use std::process::ExitCode;

use program::env::ProcessEnv;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    containerimage_server::main(&arguments, &ProcessEnv)
}
