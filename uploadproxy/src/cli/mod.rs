//! The command-line face: `serve`, `token`, `dev`, `completions` and `man`.

mod args;
mod dev;
mod serve;
mod token;

use std::ffi::OsString;
use std::process::ExitCode;

use app::command_line;
use clap::CommandFactory;

use self::args::{Cli, Command};

/// The name in front of error lines.
const PROGRAM: &str = "cdi-uploadproxy";

/// Runs the command that `arguments` (without the program's name) ask for.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match command_line::parse::<Cli>(PROGRAM, arguments) {
        Ok(cli) => run(cli.command),
        Err(code) => code,
    }
}

fn run(command: Command) -> ExitCode {
    app::panics::catch();
    match command {
        Command::Serve(arguments) => report(serve::run(*arguments)),
        Command::Token(arguments) => report(token::run(&arguments)),
        Command::Dev(arguments) => report(dev::run(&arguments)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
            report(command_line::print(&script))
        }
        Command::Man => {
            let mut page = Vec::new();
            let written = command_line::manual(Cli::command(), &mut page);
            report(written.and_then(|()| command_line::print(&page)))
        }
    }
}

fn report<E: std::fmt::Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command_line::complain(PROGRAM, error);
            ExitCode::FAILURE
        }
    }
}
