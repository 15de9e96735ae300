//! `cdi-source-update-poller`: looks whether a registry has something new for a DataImportCron.

use std::process::ExitCode;

use program::env::ProcessEnv;

fn main() -> ExitCode {
    poller::main(&program::program_mode::program_arguments(), &ProcessEnv)
}
