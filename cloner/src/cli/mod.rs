//! Runs the cloner as a command line: `clone`, `pack` and `serve`.

mod args;
mod failure;
mod progress;

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::future::poll_fn;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use codec::encode::outgoing::EncodedStream;
use program::command_line::{self, CommandError, FailedCommand};
use program::env::ProcessEnv;
use program::exit::ExitReason;
use program::progress::{BinaryBytes, ProgressDisplay};
use program::start;
use program::threads;
use sandbox::SandboxRules;
use stream::storage::StorageLocation;
use tokio::runtime::Handle;

use self::args::{
    CloneArgs, ClonerCli, ClonerCommand, ServeVolumeArgs, StreamArgs, VolumeSourceArgs,
};
use self::failure::{clone_error, internal_error};
use self::progress::{CloneEvent, CloneTimes, CloneView};
use crate::client::{ClientIdentity, SetupError, UploadClient};
use crate::clone::{self, encoder_threads};
use crate::confine;
use crate::estimate::{self, SizeKind};
use crate::serve::{self, ServeError};
use crate::source::{Tally, VolumeSource};

/// The program's name, which begins each error line.
const PROGRAM: &str = "cdi-cloner";

/// Returns true if `arguments` (without the program's name) name a subcommand.
pub fn names_subcommand(arguments: &[OsString]) -> bool {
    command_line::names_subcommand::<ClonerCli>(arguments)
}

/// Runs the command in `arguments` (without the program's name).
pub fn main(arguments: &[OsString]) -> ExitCode {
    command_line::main(PROGRAM, arguments, |_| Vec::new(), run)
}

fn run(cli: ClonerCli) -> Result<(), CommandError> {
    // This comes before the threads, which Landlock would not restrict.
    sandbox::enter(cli.sandbox.sandbox, command_rules(&cli.command))?;
    match cli.command {
        ClonerCommand::Clone(arguments) => clone_volume(arguments),
        ClonerCommand::Stream(arguments) => {
            arguments.log.begin_logging(PROGRAM);
            under_signals(async {
                // This runs on another thread, because a pipe may be slow and signals must be
                // handled meanwhile.
                let written = threads::run_blocking(move || write_stream(&arguments)).await;
                written.map_err(internal_error)?
            })
        }
        ClonerCommand::Serve(arguments) => {
            arguments.log.begin_logging(PROGRAM);
            under_signals(async {
                let ServeVolumeArgs { disk, port, idle, .. } = &arguments;
                serve::serve_volume(disk, *port, idle.0).await.map_err(|error| match error {
                    ServeError::Source(_) => CommandError::new(ExitReason::Source, error),
                    _ => CommandError::new(ExitReason::Target, error),
                })
            })
        }
    }
}

/// Returns what `command` may open.
fn command_rules(command: &ClonerCommand) -> SandboxRules {
    let mut rules = SandboxRules::new(&ProcessEnv);
    match command {
        ClonerCommand::Clone(arguments) => {
            rules.read(&arguments.source.source);
            rules.read(&arguments.cacert).read(&arguments.cert).read(&arguments.key);
            confine::add_server(&mut rules, &arguments.url);
        }
        ClonerCommand::Stream(arguments) => {
            rules.read(&arguments.source.source);
        }
        ClonerCommand::Serve(arguments) => {
            rules.read(&arguments.disk).listen(arguments.port);
        }
    }
    rules
}

/// Runs `job` until it ends or a signal arrives. No clean-up is necessary after a signal, because
/// the server is responsible for a partial clone.
fn under_signals<T>(job: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    sandbox::log_applied();
    start::on_runtime(async |shutdown| {
        tokio::select! {
            result = job => result,
            () = shutdown.cancel_token().cancelled() => Err(CommandError::from_shutdown(&shutdown)),
        }
    })
}

fn clone_volume(arguments: Box<CloneArgs>) -> Result<(), CommandError> {
    let shown = &arguments.shown;
    let display = ProgressDisplay::from_args(PROGRAM, shown.progress, &shown.output);
    let times = Arc::new(CloneTimes::default());
    let tally = Arc::new(Tally::with_observer(Arc::clone(&times) as _));
    let estimate = Arc::new(AtomicU64::new(0));
    let view = CloneView { tally: Arc::clone(&tally), estimate: Arc::clone(&estimate) };
    let started = Instant::now();
    let encoding = arguments.encoding.fixed_encoding();
    let url = arguments.url.clone();
    let cloning = async {
        // This runs on another thread, because counting the bytes of a large tree takes a while
        // and signals must be handled meanwhile.
        let opened = threads::run_blocking(move || open_endpoints(&arguments, &estimate)).await;
        let (source, client) = opened.map_err(internal_error)??;
        let sent = clone::send_volume(source, &client, encoding, &tally).await;
        sent.map_err(|error| clone_error(&error, &url))
    };
    let result = display.run_watched(view, || under_signals(cloning));
    let (volume, stream, time) = (tally.volume_bytes(), tally.stream_bytes(), started.elapsed());
    let seconds = time.as_secs_f64();
    if result.is_ok() {
        reporting::watch::log_slow_part(&times.0, volume, stream);
    }
    match &result {
        Ok(encoding) => display.show_summary(
            || {
                let (volume, stream) = (BinaryBytes(volume), BinaryBytes(stream));
                let limits = times.0.limits_suffix(time, false);
                format!("{volume} cloned as {stream} of {encoding:?} in {seconds:.1} s{limits}")
            },
            &CloneEvent::Done {
                source_bytes: volume,
                sent_bytes: stream,
                encoding: format!("{encoding:?}").to_lowercase(),
                seconds,
                stage_seconds: times.0.stage_seconds(),
                limited_seconds: times.0.limited_seconds(),
                warnings: display.warnings(),
            },
        ),
        Err(failed) => display.conclude_failed(&CloneEvent::Error {
            message: failed.to_string(),
            code: failed.exit_reason().exit_code(),
            warnings: display.warnings(),
        }),
    }
    result.map(drop)
}

/// Opens the volume and the client of a clone. Stores the approximate number of bytes that will be
/// read in `estimate`.
fn open_endpoints(
    arguments: &CloneArgs,
    estimate: &AtomicU64,
) -> Result<(VolumeSource, UploadClient), CommandError> {
    let source = open_source(&arguments.source)?;
    let (certificate, key) = (read_file(&arguments.cert)?, read_file(&arguments.key)?);
    let authorities = read_file(&arguments.cacert)?;
    let identity =
        ClientIdentity { certificate: &certificate, key: &key, authorities: &authorities };
    let client = UploadClient::new(&arguments.url, &identity)
        .map_err(|error| CommandError::new(ExitReason::Usage, setup_text(&error)))?;
    estimate.store(volume_bytes(&source, &arguments.source), Ordering::Relaxed);
    Ok((source, client))
}

fn write_stream(arguments: &StreamArgs) -> Result<(), CommandError> {
    if io::stdout().is_terminal() {
        let text = "the stream is binary, and stdout is a terminal: write it to a file or a pipe";
        return Err(CommandError::new(ExitReason::Usage, text));
    }
    let source = open_source(&arguments.source)?;
    if let (Some(volume), Some(stdout)) =
        (source.storage_location(), StorageLocation::from_file(io::stdout()))
        && volume.shares_bytes_with(stdout)
    {
        return Err(output_error("it is the volume, or overlaps it"));
    }
    let tally = Arc::new(Tally::default());
    let mut outgoing = EncodedStream::start(
        move |outlet| source.read_into(outlet),
        arguments.encoding.into(),
        encoder_threads(),
        Arc::clone(&tally),
    )
    .map_err(internal_error)?;
    let runtime = Handle::current();
    while let Some(part) = runtime.block_on(poll_fn(|context| outgoing.poll_part(context))) {
        let Ok(part) = part else {
            return Err(match tally.take_failure() {
                Some(error) => CommandError::new(ExitReason::Source, error),
                None => internal_error(program::panics::first_panic()),
            });
        };
        io::stdout().write_all(&part).map_err(output_error)?;
    }
    io::stdout().flush().map_err(output_error)
}

fn output_error(cause: impl Display) -> CommandError {
    internal_error(format_args!("cannot write to stdout: {cause}"))
}

fn open_source(arguments: &VolumeSourceArgs) -> Result<VolumeSource, CommandError> {
    VolumeSource::open_path(&arguments.source, !arguments.no_holes).map_err(|error| {
        let sentence = format_args!("{error}; a volume is a block device, a file or a directory");
        CommandError::new(ExitReason::Source, sentence)
    })
}

fn volume_bytes(source: &VolumeSource, arguments: &VolumeSourceArgs) -> u64 {
    let count = if arguments.no_holes { SizeKind::Apparent } else { SizeKind::Allocated };
    match source {
        VolumeSource::Device(device) => device.size(),
        VolumeSource::Files(_) => estimate::tree_bytes(&arguments.source, count),
    }
}

/// Returns the message for `error`, which names the options to check.
fn setup_text(error: &SetupError) -> String {
    match error {
        SetupError::Url(_) => error.to_string(),
        SetupError::NoAuthority => format!("{error}: check --cacert"),
        SetupError::Identity(_) => format!("{error}: check --cert and --key"),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, CommandError> {
    fs::read(path).map_err(|error| {
        let text = stream::error::errno_text(&error);
        let path = path.display();
        let sentence = format_args!("cannot read {path}: {text}; check --cacert, --cert and --key");
        CommandError::new(ExitReason::Usage, sentence)
    })
}
