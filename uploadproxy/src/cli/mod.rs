//! The command-line face: `serve`, `token` and `dev`.

mod args;
mod dev;
mod serve;
mod token;

use std::ffi::OsString;
use std::process::ExitCode;

use program::command_line::{self, Failed};
use program::exit::Exit;

use self::args::{Cli, Command};

/// The name in front of error lines.
const PROGRAM: &str = "cdi-uploadproxy";

/// A command that failed.
#[derive(Debug, thiserror::Error)]
enum CommandFailed {
    #[error(transparent)]
    Serve(#[from] serve::ServeFailed),
    #[error(transparent)]
    Token(#[from] token::TokenFailed),
    #[error(transparent)]
    Dev(#[from] dev::DevFailed),
}

impl Failed for CommandFailed {
    fn exit(&self) -> Exit {
        Exit::Internal
    }
}

/// Runs the command that `arguments` (without the program's name) ask for.
pub fn main(arguments: &[OsString]) -> ExitCode {
    command_line::main(PROGRAM, arguments, |cli: Cli| -> Result<(), CommandFailed> {
        match cli.command {
            Command::Serve(arguments) => serve::run(*arguments)?,
            Command::Token(arguments) => token::run(&arguments)?,
            Command::Dev(arguments) => dev::run(&arguments)?,
        }
        Ok(())
    })
}
