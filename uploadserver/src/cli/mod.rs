//! The command-line face: `serve`, `completions` and `man`.

mod args;
mod serve;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;

use self::args::{Cli, Command};

/// The name in front of error lines.
const PROGRAM: &str = "cdi-uploadserver";

/// Runs the command that `arguments` (without the program's name) ask for.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match app::command_line::parse::<Cli>(PROGRAM, arguments) {
        Ok(cli) => run(cli.command),
        Err(code) => code,
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(arguments) => {
            app::panics::catch();
            match serve::run(*arguments) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => {
                    app::command_line::complain(PROGRAM, &failure);
                    ExitCode::from(failure.exit_code())
                }
            }
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
            print(&script)
        }
        Command::Man => {
            let mut page = Vec::new();
            // Writing to memory does not fail.
            app::command_line::manual(Cli::command(), &mut page).ok();
            print(&page)
        }
    }
}

fn print(bytes: &[u8]) -> ExitCode {
    match app::command_line::print(bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
