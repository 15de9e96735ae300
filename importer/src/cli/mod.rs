//! The command-line face: `import`, `convert`, `unpack`, `apply`, `info`, `check`, `completions` and `man`.

mod apply;
pub mod args;
mod check;
mod event;
pub mod failure;
mod import;
mod info;
mod job;
mod open;
mod progress;
mod unpack;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;
use datapath::facts::ImageFacts;
use volume::work::{self, Ended};

use self::args::{Cli, Command};
use self::failure::Failure;
use self::open::Context;

/// The name in front of error lines.
const PROGRAM: &str = "cdi-importer";

/// How long a command may clean up after a signal. Unlinking a file takes no time; whoever pressed Ctrl-C while the
/// kernel is busy with an `fsync` need not wait for its end.
const GRACE: Duration = Duration::from_secs(2);

/// Runs the command that `arguments` (without the program's name) ask for.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match app::command_line::parse::<Cli>(PROGRAM, arguments) {
        Ok(cli) => {
            volume::limits::of_command(cli.memory);
            finish(run(cli.command))
        }
        Err(code) => code,
    }
}

fn run(command: Command) -> Result<(), Failure> {
    app::panics::catch();
    match command {
        Command::Import(arguments) => import::import(*arguments),
        Command::Convert(arguments) => import::convert(*arguments),
        Command::Unpack(arguments) => unpack::run(*arguments),
        Command::Apply(arguments) => apply::run(*arguments),
        Command::Info(arguments) => info::run(*arguments),
        Command::Check(arguments) => check::run(*arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
            print(&script)
        }
        Command::Man => {
            let mut page = Vec::new();
            app::command_line::manual(Cli::command(), &mut page)
                .map_err(|error| Failure::Internal(error.to_string()))?;
            print(&page)
        }
    }
}

/// Runs `job` on a runtime, under signals.
fn on_runtime<T, F>(job: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: FnOnce(Context) -> Result<T, Failure> + Send + 'static,
{
    let runtime =
        app::start::runtime().map_err(|error| Failure::Internal(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(async {
        let shutdown = daemon::signal::watch()
            .map_err(|error| Failure::Internal(format!("cannot watch for signals: {error}")))?;
        let context = Context {
            handle: tokio::runtime::Handle::current(),
            stop: shutdown.token().clone(),
        };
        let result = match work::run(&shutdown, GRACE, move || job(context)).await {
            Ended::Returned(result) => result,
            Ended::Panicked(sentence) => Err(Failure::Internal(sentence)),
            Ended::Overdue(signal) => Err(Failure::Signalled(signal)),
        };
        // Whatever a job says after a signal, the signal is why it failed.
        result.map_err(|failure| shutdown.signal().map_or(failure, Failure::Signalled))
    });
    runtime.shutdown_background();
    ended
}

/// `gzip > qcow2`.
fn kinds(facts: &ImageFacts) -> String {
    let format = facts.format.to_string();
    let layers: Vec<&str> = facts.layers.iter().copied().chain([format.as_str()]).collect();
    layers.join(" > ")
}

/// What a summary says of a checksum.
fn verified(checksum: Option<&str>) -> String {
    checksum.map_or_else(String::new, |checksum| format!(", {checksum} verified"))
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    app::command_line::print(bytes)
        .map_err(|error| Failure::Internal(format!("cannot write to stdout: {error}")))
}

fn finish(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            app::command_line::complain(PROGRAM, failure.sentence());
            ExitCode::from(failure.exit_code())
        }
    }
}
