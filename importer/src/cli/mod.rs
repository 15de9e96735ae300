//! The command-line face: `import`, `convert`, `unpack`, `apply`, `info` and `check`.

mod apply;
pub mod args;
mod check;
mod child;
mod event;
pub mod failure;
mod import;
mod info;
mod job;
mod open;
mod openstack;
mod progress;
mod unpack;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use datapath::disk;
use datapath::facts::ImageFacts;
use program::command_line;
use program::job::{self as background, COMMAND_GRACE, Ended};
use program::start;

use self::args::{Cli, Command};
use self::failure::CommandFailed;
use self::open::Context;

/// The name in front of error lines.
const PROGRAM: &str = "cdi-importer";

/// Runs the command that `arguments` (without the program's name) ask for.
pub fn main(arguments: &[OsString]) -> ExitCode {
    command_line::main(PROGRAM, arguments, run)
}

fn run(cli: Cli) -> Result<(), CommandFailed> {
    volume::limits::of_command(cli.memory);
    match cli.command {
        Command::Import(arguments) => import::import(*arguments),
        Command::Convert(arguments) => import::convert(*arguments),
        Command::Unpack(arguments) => unpack::run(*arguments),
        Command::Apply(arguments) => apply::run(*arguments),
        Command::Info(arguments) => info::run(*arguments),
        Command::Check(arguments) => check::run(*arguments),
        Command::RunWithParent(arguments) => child::run(&arguments),
    }
}

/// Runs `job` on a runtime, under signals.
fn on_runtime<T, F>(job: F) -> Result<T, CommandFailed>
where
    T: Send + 'static,
    F: FnOnce(Context) -> Result<T, CommandFailed> + Send + 'static,
{
    start::on_runtime(async |shutdown| {
        let context = Context {
            handle: tokio::runtime::Handle::current(),
            stop: shutdown.token().clone(),
        };
        let job = move || job(context);
        let result = match background::run(&shutdown, COMMAND_GRACE, disk::abandon, job).await {
            Ended::Returned(result) => result,
            Ended::Failed(sentence) => Err(CommandFailed::Internal(sentence)),
            Ended::Overdue(signal) => Err(CommandFailed::Signalled(signal)),
        };
        // Whatever a job says after a signal, the signal is why it failed.
        result.map_err(|failed| shutdown.signal().map_or(failed, CommandFailed::Signalled))
    })
}

/// `gzip > qcow2`.
fn kinds(facts: &ImageFacts) -> String {
    let format = facts.format.to_string();
    let layers: Vec<&str> = facts.layers.iter().copied().chain([format.as_str()]).collect();
    layers.join(" > ")
}

/// The words of a summary for a checksum.
fn verified(checksum: Option<&str>) -> String {
    checksum.map_or_else(String::new, |checksum| format!(", {checksum} verified"))
}

fn print(bytes: &[u8]) -> Result<(), CommandFailed> {
    command_line::print(bytes)
        .map_err(|error| CommandFailed::Internal(format!("cannot write to stdout: {error}")))
}
