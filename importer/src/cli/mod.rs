//! Runs the importer as a command line: `import`, `convert`, `unpack`, `apply`, `restore`, `pack`,
//! `info`, `check` and `compare`.

mod advice;
mod apply;
pub mod args;
mod check;
mod child;
mod compare;
mod confine;
mod event;
mod evidence;
pub mod failure;
mod import;
mod info;
mod job;
mod open;
mod openstack;
mod pack;
mod progress;
mod restore;
mod target;
mod unpack;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use datapath::disk;
use program::command_line::{self, CommandError};
use program::job::{self as background, COMMAND_GRACE, JobOutcome};
use program::start;
use stream::facts::ImageFacts;
use stream::observe::Observer;
use tokio::runtime::Handle;

use self::args::{ImporterCli, ImporterCommand};
use self::failure::{ImporterCommandError, internal_error};
use self::open::JobContext;

/// The program's name, which begins each error line.
const PROGRAM: &str = "cdi-importer";

/// Returns true if `arguments` (without the program's name) name a subcommand.
pub fn names_subcommand(arguments: &[OsString]) -> bool {
    command_line::names_subcommand::<ImporterCli>(arguments)
}

/// Runs the command in `arguments` (without the program's name).
pub fn main(arguments: &[OsString]) -> ExitCode {
    command_line::main(PROGRAM, arguments, |_| Vec::new(), run)
}

fn run(cli: ImporterCli) -> Result<(), ImporterCommandError> {
    volume::limits::of_command(cli.memory);
    // This comes before the threads, which Landlock would not restrict.
    if let Some(rules) = confine::command_rules(&cli.command) {
        sandbox::enter(cli.sandbox.sandbox, rules)?;
    }
    match cli.command {
        ImporterCommand::Import(arguments) => import::run_import(*arguments),
        ImporterCommand::Convert(arguments) => import::run_convert(*arguments),
        ImporterCommand::Unpack(arguments) => unpack::run(*arguments),
        ImporterCommand::Apply(arguments) => apply::run(*arguments),
        ImporterCommand::Restore(arguments) => restore::run(*arguments),
        ImporterCommand::Pack(arguments) => pack::run(*arguments),
        ImporterCommand::Info(arguments) => info::run(*arguments),
        ImporterCommand::Check(arguments) => check::run(*arguments),
        ImporterCommand::Compare(arguments) => compare::run(arguments),
        ImporterCommand::RunWithParent(arguments) => child::run(&arguments),
    }
}

/// Starts a runtime and runs `job` until it ends or a signal stops it. `observer` receives the
/// events of the transfer and of its source.
fn on_runtime<T, F>(observer: Arc<dyn Observer>, job: F) -> Result<T, ImporterCommandError>
where
    T: Send + 'static,
    F: FnOnce(JobContext) -> Result<T, ImporterCommandError> + Send + 'static,
{
    sandbox::log_applied();
    start::on_runtime(async |shutdown| {
        let (handle, stop) = (Handle::current(), shutdown.cancel_token().clone());
        let context = JobContext { handle, stop, observer };
        let job = move || job(context);
        let result =
            match background::run_job(&shutdown, COMMAND_GRACE, disk::remove_unfinished, job).await
            {
                JobOutcome::Returned(result) => result,
                JobOutcome::Failed(sentence) => Err(internal_error(sentence)),
                JobOutcome::Overdue(signal) => Err(CommandError::from_signal(signal).into()),
            };
        // After a signal, an error is only its consequence, so the signal is reported instead.
        result.map_err(|failed| {
            let signal = shutdown.first_signal();
            signal.map_or(failed, |signal| CommandError::from_signal(signal).into())
        })
    })
}

/// Returns the layers and the format of an image, with the outermost first, such as `gzip >
/// qcow2`.
fn format_chain(facts: &ImageFacts) -> String {
    let format = facts.format.to_string();
    let layers: Vec<&str> = facts.layers.iter().copied().chain([format.as_str()]).collect();
    layers.join(" > ")
}

/// Returns the end of the summary line for a verified checksum, or an empty text without a
/// checksum.
fn checksum_suffix(checksum: Option<&str>) -> String {
    checksum.map_or_else(String::new, |checksum| format!(", {checksum} verified"))
}

fn print_bytes(bytes: &[u8]) -> Result<(), ImporterCommandError> {
    command_line::print_stdout(bytes)
        .map_err(|error| internal_error(format_args!("cannot write to stdout: {error}")))
}
