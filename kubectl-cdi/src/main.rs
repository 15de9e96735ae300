//! The program `kubectl-cdi`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_cdi::main(
        &program::face::program_name(),
        &program::face::program_arguments(),
    )
}
