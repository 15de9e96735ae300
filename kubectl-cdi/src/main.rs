//! The program `kubectl-cdi`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_cdi::main(
        &program::program_mode::program_name(),
        &program::program_mode::program_arguments(),
    )
}
