//! The command-line face: `clone` and `pack`.

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
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use datapath::storage::Storage;
use indicatif::BinaryBytes;
use program::command_line::{self, Failed};
use program::progress::Display;
use program::start;
use program::threads;
use tokio::runtime::Handle;

use self::args::{Cli, CloneArgs, Command, PackArgs, SourceArgs};
use self::failure::CommandFailed;
use self::progress::{Event, View};
use crate::client::{Client, Identity};
use crate::clone::{self, encoders};
use crate::estimate::{self, Count};
use crate::source::Source;
use crate::source::Tally;
use datapath::encode::outgoing::Outgoing;

/// The name in front of error lines.
const PROGRAM: &str = "cdi-cloner";

/// Runs the command that `arguments` (without the program's name) ask for.
pub fn main(arguments: &[OsString]) -> ExitCode {
    command_line::main(PROGRAM, arguments, |cli: Cli| match cli.command {
        Command::Clone(arguments) => clone_volume(arguments),
        Command::Pack(arguments) => {
            arguments.log.begin(PROGRAM);
            under_signals(async {
                // A pipe may be slow, and signals have to be seen meanwhile.
                let packed = threads::run(move || pack(&arguments)).await;
                packed.map_err(|error| CommandFailed::Internal(error.to_string()))?
            })
        }
    })
}

/// Runs `job` until it ends or a signal comes. There is nothing to clean up: what was sent of a clone is the server's.
fn under_signals<T>(job: impl Future<Output = Result<T, CommandFailed>>) -> Result<T, CommandFailed> {
    start::on_runtime(async |shutdown| {
        tokio::select! {
            result = job => result,
            () = shutdown.token().cancelled() => Err(CommandFailed::signalled(&shutdown)),
        }
    })
}

fn clone_volume(arguments: Box<CloneArgs>) -> Result<(), CommandFailed> {
    let shown = &arguments.shown;
    let display = Display::begin(PROGRAM, shown.progress, &shown.output);
    let tally = Arc::new(Tally::default());
    let estimate = Arc::new(AtomicU64::new(0));
    let view = View {
        tally: Arc::clone(&tally),
        estimate: Arc::clone(&estimate),
    };
    let started = Instant::now();
    let encoding = arguments.encoding;
    let cloning = async {
        // Counting the bytes of a large tree takes a while, and signals have to be seen meanwhile.
        let opened = threads::run(move || ends(&arguments, &estimate)).await;
        let (source, client) = opened.map_err(|error| CommandFailed::Internal(error.to_string()))??;
        Ok(clone::run(source, &client, encoding.into(), &tally).await?)
    };
    let result = display.during(view, || under_signals(cloning));
    let (volume, stream, seconds) = (
        tally.volume_bytes(),
        tally.stream_bytes(),
        started.elapsed().as_secs_f64(),
    );
    match &result {
        Ok(encoding) => display.conclude(
            || {
                let (volume, stream) = (BinaryBytes(volume), BinaryBytes(stream));
                format!("{volume} cloned as {stream} of {encoding:?} in {seconds:.1} s")
            },
            &Event::Done {
                source_bytes: volume,
                sent_bytes: stream,
                encoding: format!("{encoding:?}").to_lowercase(),
                seconds,
            },
        ),
        Err(failed) => display.conclude_failed(&Event::Error {
            message: failed.to_string(),
            code: failed.exit().code(),
        }),
    }
    result.map(drop)
}

/// The two ends of a clone, and in `estimate` about how many bytes will be read.
fn ends(arguments: &CloneArgs, estimate: &AtomicU64) -> Result<(Source, Client), CommandFailed> {
    let source = open(&arguments.source)?;
    let (certificate, key) = (read(&arguments.cert)?, read(&arguments.key)?);
    let authorities = read(&arguments.ca)?;
    let identity = Identity {
        certificate: &certificate,
        key: &key,
        authorities: &authorities,
    };
    let client =
        Client::new(&arguments.url, &identity).map_err(|error| CommandFailed::Usage(error.to_string()))?;
    estimate.store(volume_bytes(&source, &arguments.source), Ordering::Relaxed);
    Ok((source, client))
}

fn pack(arguments: &PackArgs) -> Result<(), CommandFailed> {
    let source = open(&arguments.source)?;
    if let (Some(volume), Some(stdout)) = (source.storage(), Storage::of(io::stdout()))
        && volume.shares_bytes_with(stdout)
    {
        return Err(CommandFailed::Output(
            "it is the volume, or holds bytes of it".to_owned(),
        ));
    }
    let tally = Arc::new(Tally::default());
    let mut outgoing = Outgoing::start(
        move |outlet| source.read(outlet),
        arguments.encoding.into(),
        encoders(),
        Arc::clone(&tally),
    )
    .map_err(|error| CommandFailed::Internal(error.to_string()))?;
    let runtime = Handle::current();
    while let Some(part) = runtime.block_on(poll_fn(|context| outgoing.poll_part(context))) {
        let Ok(part) = part else {
            return Err(match tally.take_failure() {
                Some(error) => CommandFailed::Source(error.to_string()),
                None => CommandFailed::Internal(program::panics::first()),
            });
        };
        io::stdout()
            .write_all(&part)
            .map_err(|error| CommandFailed::Output(error.to_string()))?;
    }
    io::stdout()
        .flush()
        .map_err(|error| CommandFailed::Output(error.to_string()))
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
