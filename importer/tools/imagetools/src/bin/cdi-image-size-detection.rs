//! `cdi-image-size-detection`: says how large the disk on a volume is.

use std::process::ExitCode;

use program::env::ProcessEnv;

fn main() -> ExitCode {
    imagetools::size_detection::main(&program::program_mode::program_arguments(), &ProcessEnv)
}
