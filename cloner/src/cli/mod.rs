//! The command-line face: `clone`, `pack`, `completions` and `man`.

mod args;
mod failure;
mod progress;

use std::ffi::OsString;
use std::fs;
use std::future::poll_fn;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::CommandFactory;
use daemon::logging::{self, LogFormat, LogOptions};
use datapath::storage::Storage;
use indicatif::BinaryBytes;

use self::args::{Cli, CloneArgs, Command, PackArgs, SourceArgs};
use self::failure::CommandFailed;
use self::progress::Display;
use crate::client::{Client, Identity};
use crate::clone::{self, encoders};
use crate::estimate::{self, Count};
use crate::outgoing::{Outgoing, Tally};
use crate::source::Source;

/// The name in front of error lines.
const PROGRAM: &str = "cdi-cloner";

/// Runs the command that `arguments` (without the program's name) ask for.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match app::command_line::parse::<Cli>(PROGRAM, arguments) {
        Ok(cli) => finish(run(cli.command)),
        Err(code) => code,
    }
}

fn run(command: Command) -> Result<(), CommandFailed> {
    app::panics::catch();
    daemon::tls::install_provider();
    match command {
        Command::Clone(arguments) => under_signals(clone_volume(*arguments)),
        Command::Pack(arguments) => under_signals(pack(arguments)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
            print(&script)
        }
        Command::Man => {
            let mut page = Vec::new();
            app::command_line::manual(Cli::command(), &mut page)
                .map_err(|error| CommandFailed::Internal(error.to_string()))?;
            print(&page)
        }
    }
}

/// Runs `job` until it ends or a signal comes. There is nothing to clean up: what was sent of a clone is the server's.
fn under_signals(job: impl Future<Output = Result<(), CommandFailed>>) -> Result<(), CommandFailed> {
    let runtime =
        app::start::runtime().map_err(|error| CommandFailed::Internal(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(async {
        let shutdown = daemon::signal::watch()
            .map_err(|error| CommandFailed::Internal(format!("cannot watch for signals: {error}")))?;
        tokio::select! {
            result = job => result,
            () = shutdown.token().cancelled() => Err(CommandFailed::signalled(&shutdown)),
        }
    });
    runtime.shutdown_background();
    ended
}

async fn clone_volume(arguments: CloneArgs) -> Result<(), CommandFailed> {
    let display = Display::choose(arguments.progress, arguments.quiet);
    logging::init_with(log_options(arguments.verbose), display.log_writer());
    let source = open(&arguments.source)?;
    let total = volume_bytes(&source, &arguments.source);
    let (certificate, key) = (read(&arguments.cert)?, read(&arguments.key)?);
    let authorities = read(&arguments.ca)?;
    let identity = Identity {
        certificate: &certificate,
        key: &key,
        authorities: &authorities,
    };
    let client =
        Client::new(&arguments.url, &identity).map_err(|error| CommandFailed::Usage(error.to_string()))?;
    let tally = Arc::new(Tally::default());
    let started = Instant::now();
    let cloning = clone::run(source, &client, arguments.encoding.into(), &tally);
    let result = tokio::select! {
        result = cloning => result,
        never = display.show(&tally, total) => match never {},
    };
    display.clear();
    let encoding = result?;
    if arguments.quiet {
        return Ok(());
    }
    let (volume, stream) = (tally.volume_bytes(), tally.stream_bytes());
    let line = format!(
        "{} cloned as {} of {encoding:?} in {:.1} s\n",
        BinaryBytes(volume),
        BinaryBytes(stream),
        started.elapsed().as_secs_f64()
    );
    app::command_line::print_summary(PROGRAM, &line);
    Ok(())
}

async fn pack(arguments: PackArgs) -> Result<(), CommandFailed> {
    logging::init(log_options(0));
    let source = open(&arguments.source)?;
    if let (Some(volume), Some(stdout)) = (source.storage(), Storage::of(io::stdout()))
        && volume.shares_bytes_with(stdout)
    {
        return Err(CommandFailed::Output(
            "it is the volume, or holds bytes of it".to_owned(),
        ));
    }
    let tally = Arc::new(Tally::default());
    let mut outgoing = Outgoing::start(source, arguments.encoding.into(), encoders(), Arc::clone(&tally));
    while let Some(part) = poll_fn(|context| outgoing.poll_part(context)).await {
        let Ok(part) = part else {
            return Err(match tally.take_failure() {
                Some(error) => CommandFailed::Source(error.to_string()),
                None => CommandFailed::Internal(app::panics::first()),
            });
        };
        // A pipe may be slow, and signals have to be seen meanwhile.
        let written = tokio::task::spawn_blocking(move || io::stdout().lock().write_all(&part)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(CommandFailed::Output(error.to_string())),
            Err(_) => return Err(CommandFailed::Internal(app::panics::first())),
        }
    }
    io::stdout()
        .flush()
        .map_err(|error| CommandFailed::Output(error.to_string()))
}

/// What so many `-v` show.
fn log_options(verbose: u8) -> LogOptions {
    LogOptions {
        format: LogFormat::Plain,
        verbosity: match verbose {
            0 => 0,
            1 => 1,
            2 => 3,
            _ => 5,
        },
        program: PROGRAM,
    }
}

fn open(arguments: &SourceArgs) -> Result<Source, CommandFailed> {
    Source::find(&arguments.source, !arguments.no_holes)
        .map_err(|error| CommandFailed::Source(error.to_string()))
}

fn volume_bytes(source: &Source, arguments: &SourceArgs) -> u64 {
    let count = if arguments.no_holes {
        Count::Apparent
    } else {
        Count::Allocated
    };
    match source {
        Source::Device(device) => device.size(),
        Source::Files(_) => estimate::tree_bytes(&arguments.source, count),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CommandFailed> {
    fs::read(path).map_err(|error| {
        let text = datapath::error::errno_text(&error);
        CommandFailed::Usage(format!("cannot read {}: {text}", path.display()))
    })
}

fn print(bytes: &[u8]) -> Result<(), CommandFailed> {
    app::command_line::print(bytes).map_err(|error| CommandFailed::Output(error.to_string()))
}

fn finish(result: Result<(), CommandFailed>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            app::command_line::complain(PROGRAM, &failure);
            ExitCode::from(failure.exit_code())
        }
    }
}
