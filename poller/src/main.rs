//! `cdi-source-update-poller`: looks whether a registry has something new for a DataImportCron.

use std::ffi::OsString;
use std::process::ExitCode;

use daemon::env::ProcessEnv;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    poller::main(&arguments, &ProcessEnv)
}
