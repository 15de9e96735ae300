//! The program `kubectl-cdi`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_cdi::main(&program::face::name(), &program::face::arguments())
}
