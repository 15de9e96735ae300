//! The part that all commands with progress have in common: logging, progress, and a summary line
//! at the end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::options::WriteOptions;
use program::command_line::{FailedCommand, OutputArgs};
use program::progress::{ProgressDisplay, ProgressMode};
use stream::options::ReadOptions;
use stream::source::Source;
use volume::limits::TransferLimits;

use super::args::{SourceArgs, TransferArgs};
use super::event::ImportEvent;
use super::failure::{ImporterCommandError, usage_error};
use super::open::JobContext;
use super::progress::TransferView;
use super::watch::TransferWatch;

/// Runs `work` with logging and with progress in `mode`. `show` then prints the summary of its
/// report, from the time it took and what was observed. If `work` fails, it must clean up after
/// itself.
pub(super) fn run_job<R: Send + 'static>(
    mode: ProgressMode,
    output: &OutputArgs,
    work: impl FnOnce(&JobContext) -> Result<R, ImporterCommandError> + Send + 'static,
    show: impl FnOnce(&ProgressDisplay, &R, Duration, &TransferWatch),
) -> Result<(), ImporterCommandError> {
    let display = ProgressDisplay::from_args(super::PROGRAM, mode, output);
    let watch = Arc::new(TransferWatch::default());
    let started = Instant::now();
    let result = display.run_watched(TransferView::new(Arc::clone(&watch)), || {
        super::on_runtime(Arc::clone(&watch) as _, move |context| work(&context))
    });
    match &result {
        Ok(report) => show(&display, report, started.elapsed(), &watch),
        Err(failed) => display.conclude_failed(&ImportEvent::Error {
            message: failed.to_string(),
            stage: failed.failed_stage(),
            code: failed.exit_reason().exit_code(),
            retries: watch.retries(),
            warnings: display.warnings(),
        }),
    }
    result.map(drop)
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
