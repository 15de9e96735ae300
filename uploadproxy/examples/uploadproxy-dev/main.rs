//! `uploadproxy-dev`: the upload proxy without a cluster, for tests, benchmarks and local trials.
//! It is not part of an image or a release.
//!
//! It runs the library of `cdi-uploadproxy`. It reads the upload servers from a file instead of
//! asking the API server for PVCs, and makes the tokens that CDI's API server would make.

mod args;
mod dev;
mod routes;
mod serve;
mod token;

use std::process::ExitCode;

use program::command_line::{self, FailedCommand};
use program::exit::ExitReason;

use self::args::{Cli, Command};

/// The allocator of `cdi-uploadproxy`, because tests and benchmarks measure the memory of this
/// program in its place.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The program's name, with which error lines begin.
const PROGRAM: &str = "uploadproxy-dev";

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandFailed {
    #[error(transparent)]
    Serve(#[from] serve::ServeFailed),
    #[error(transparent)]
    Token(#[from] token::TokenFailed),
    #[error(transparent)]
    Dev(#[from] dev::DevFailed),
}

impl FailedCommand for CommandFailed {
    fn exit_reason(&self) -> ExitReason {
        let is_usage = match self {
            Self::Serve(failed) | Self::Dev(dev::DevFailed::Serve(failed)) => {
                failed.is_about_files()
            }
            Self::Token(failed) => failed.is_about_files(),
            Self::Dev(_) => false,
        };
        if is_usage { ExitReason::Usage } else { ExitReason::Internal }
    }
}

fn main() -> ExitCode {
    let arguments = program::program_mode::program_arguments();
    command_line::main(
        PROGRAM,
        &arguments,
        |_| Vec::new(),
        |cli: Cli| -> Result<(), CommandFailed> {
            match cli.command {
                Command::Serve(arguments) => serve::run(*arguments)?,
                Command::Token(arguments) => token::run(&arguments)?,
                Command::Dev(arguments) => dev::run(&arguments)?,
            }
            Ok(())
        },
    )
}
