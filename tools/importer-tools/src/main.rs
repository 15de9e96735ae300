//! `cdi-importer-tools`: small programs that CDI runs in its importer's image.

use std::ffi::OsString;
use std::process::ExitCode;

use program::env::ProcessEnv;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    importer_tools::main(&words, &ProcessEnv)
}
