//! `cdi-source-update-poller`: checks whether a registry contains a new image for a
//! DataImportCron.

use std::process::ExitCode;

use program::env::ProcessEnv;

fn main() -> ExitCode {
    poller::main(&program::program_mode::program_arguments(), &ProcessEnv)
}
