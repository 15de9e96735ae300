//! `cdi-env-extractor`: writes the environment of its container to a file.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    env_extractor::main(env::args_os().skip(1), env::vars_os())
}
