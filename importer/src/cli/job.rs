//! The part that `unpack` and `apply` have in common: logging, progress, and a summary line at the
//! end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::options::WriteOptions;
use program::progress::{ProgressDisplay, ProgressMode};
use stream::observe::TransferTimes;
use stream::options::ReadOptions;
use stream::source::Source;
use volume::limits::TransferLimits;

use super::args::{JobArgs, SourceArgs, TransferArgs};
use super::failure::{ImporterCommandError, usage_error};
use super::open::JobContext;
use super::progress::TransferView;
use super::watch::TransferWatch;

/// Runs `work` with logging and progress, and prints what `summary` creates from its report, the
/// time it took, and what limited it. If `work` fails, it must clean up after itself.
pub(super) fn run_job<R: Send + 'static>(
    arguments: &JobArgs,
    work: impl FnOnce(&JobContext) -> Result<R, ImporterCommandError> + Send + 'static,
    summary: impl FnOnce(&R, Duration, &TransferTimes) -> String,
) -> Result<(), ImporterCommandError> {
    let display = ProgressDisplay::from_args(super::PROGRAM, ProgressMode::Auto, &arguments.output);
    let watch = Arc::new(TransferWatch::default());
    let started = Instant::now();
    let report = display.run_watched(TransferView::new(Arc::clone(&watch)), || {
        super::on_runtime(Arc::clone(&watch) as _, move |context| work(&context))
    })?;
    let time = started.elapsed();
    display.show_summary(|| summary(&report, time, watch.times()), &());
    Ok(())
}

/// Returns the options for reading the source.
pub(super) fn read_options(
    arguments: &TransferArgs,
    limits: &TransferLimits,
    context: &JobContext,
) -> ReadOptions {
    let mut reading = limits.read_options(context.stop.clone(), Arc::clone(&context.observer));
    reading.checksum = arguments.checksum.clone();
    reading.limits.threads = arguments.threads.unwrap_or_else(program::job::data_threads);
    reading
}

/// Returns the options for writing the target.
pub(super) fn write_options(arguments: &TransferArgs) -> WriteOptions {
    WriteOptions {
        workers: arguments.threads.unwrap_or_else(program::job::data_threads),
        ..WriteOptions::default()
    }
}

/// Opens the source of a job that recognizes its content by itself. Fails if `--format` or `--ova`
/// is given; `what` tells the user which content the job expects.
pub(super) fn open_source(
    arguments: &SourceArgs,
    context: &JobContext,
    is_checked: bool,
    what: &str,
) -> Result<Box<dyn Source>, ImporterCommandError> {
    let content = &arguments.content;
    let options = [(content.format.is_some(), "--format"), (content.ova, "--ova")];
    if let Some((_, option)) = options.into_iter().find(|(is_given, _)| *is_given) {
        return Err(usage_error(format!("{option} is for images: {what}")));
    }
    let source = context.open_source(arguments, is_checked)?;
    tracing::info!(source = source.name(), length = source.total_bytes(), "opened the source");
    Ok(source)
}
