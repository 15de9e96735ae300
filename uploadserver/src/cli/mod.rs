//! The command line of the server: `serve`.

mod args;
mod serve;

use std::ffi::OsString;
use std::process::ExitCode;

use program::command_line;

use self::args::{ServerCli, ServerCommand};
use crate::PROGRAM;

/// Returns true if `arguments` (without the program's name) name a subcommand.
pub fn names_subcommand(arguments: &[OsString]) -> bool {
    command_line::names_subcommand::<ServerCli>(arguments)
}

/// Runs the command that `arguments` (without the program's name) ask for.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let run = |cli: ServerCli| match cli.command {
        ServerCommand::Serve(arguments) => serve::run_serve(*arguments, cli.sandbox.sandbox),
    };
    command_line::main(PROGRAM, arguments, |_| Vec::new(), run)
}
