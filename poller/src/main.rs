//! `cdi-source-update-poller`: looks whether a registry has something new for a DataImportCron.

use std::process::ExitCode;

use daemon::env::ProcessEnv;

fn main() -> ExitCode {
    poller::main(&app::face::arguments(), &ProcessEnv)
}
