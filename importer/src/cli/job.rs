//! The common part of `unpack` and `apply`: a log, progress, one line at the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::observe::Observer;
use datapath::options::{Reading, Writing};
use datapath::source::Source;
use program::progress::{Display, Progress};
use volume::limits::TransferLimits;

use super::args::{JobArgs, SourceArgs, TransferArgs};
use super::failure::CommandFailed;
use super::open::Context;
use super::progress::View;
use super::watch::Watch;

/// Runs `work` and prints what `summary` says of its report. What the work leaves when it fails is its own business.
pub(super) fn run<R: Send + 'static>(
    arguments: &JobArgs,
    work: impl FnOnce(&Context, Arc<dyn Observer>) -> Result<R, CommandFailed> + Send + 'static,
    summary: impl FnOnce(&R, Duration) -> String,
) -> Result<(), CommandFailed> {
    let display = Display::begin(super::PROGRAM, Progress::Auto, &arguments.output);
    let watch = Arc::new(Watch::default());
    let observer = Arc::clone(&watch);
    let started = Instant::now();
    let report = display.during(View::new(watch), || {
        super::on_runtime(move |context| work(&context, observer))
    })?;
    display.conclude(|| summary(&report, started.elapsed()), &());
    Ok(())
}

/// Settings of what is read.
pub(super) fn reading(
    arguments: &TransferArgs,
    limits: &TransferLimits,
    context: &Context,
    observer: Arc<dyn Observer>,
) -> Reading {
    Reading {
        checksum: arguments.checksum.clone(),
        ..limits.reading(context.stop.clone(), observer)
    }
}

/// Settings of what is written.
pub(super) fn writing(arguments: &TransferArgs) -> Writing {
    Writing {
        workers: arguments.threads.unwrap_or_else(program::job::data_threads),
        ..Writing::default()
    }
}

/// Opens the source of something that is `what`, whatever its content looks like.
pub(super) fn open(
    arguments: &SourceArgs,
    context: &Context,
    is_checked: bool,
    what: &str,
) -> Result<Box<dyn Source>, CommandFailed> {
    if arguments.content.format.is_some() {
        return Err(CommandFailed::Usage(format!("--format is for images: {what}")));
    }
    let source = context.open(arguments, is_checked)?;
    tracing::info!(
        source = source.name(),
        length = source.length(),
        "opened the source"
    );
    Ok(source)
}
