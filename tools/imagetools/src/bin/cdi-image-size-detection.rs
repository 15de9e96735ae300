//! `cdi-image-size-detection`: reports the size of the disk on a volume.

use std::process::ExitCode;

use program::env::ProcessEnv;

fn main() -> ExitCode {
    imagetools::size_detection::main(&program::program_mode::program_arguments(), &ProcessEnv)
}
