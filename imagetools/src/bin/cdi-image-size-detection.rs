//! `cdi-image-size-detection`: says how large the disk on a volume is.

use std::ffi::OsString;
use std::process::ExitCode;

use daemon::env::ProcessEnv;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    imagetools::size_detection::main(&arguments, &ProcessEnv)
}
