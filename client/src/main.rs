//! The program `kubectl-cdi`.

use std::process::ExitCode;

fn main() -> ExitCode {
    client::main(&app::face::name(), &app::face::arguments())
}
