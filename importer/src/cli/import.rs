//! `cdi-importer import`, and `convert`, which is the same for what is on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datapath::disk;
use datapath::observe::Observer;
use datapath::options::{self, Writing};
use datapath::source::Source;
use datapath::transfer::{self, Report};
use indicatif::BinaryBytes;
use program::command_line::Failed;
use program::progress::Display;
use volume::limits::TransferLimits;

use super::args::{ContentArgs, ConvertArgs, ImportArgs, Route, WriteArgs};
use super::event::Event;
use super::failure::CommandFailed;
use super::job;
use super::open::Context;
use super::progress::{View, bytes_per_second};
use super::watch::Watch;

/// Opens the source once the runtime is there; told whether a checksum of the whole object will be verified.
type Open = dyn FnOnce(&Context, bool) -> Result<Box<dyn Source>, CommandFailed> + Send;

/// Source and target of an import.
struct Job {
    verb: &'static str,
    open: Box<Open>,
    content: ContentArgs,
    limits: TransferLimits,
    target: PathBuf,
    write: WriteArgs,
}

pub(super) fn import(arguments: ImportArgs) -> Result<(), CommandFailed> {
    let ImportArgs {
        source,
        target,
        write,
    } = arguments;
    run(Job {
        verb: "imported",
        content: source.content.clone(),
        limits: source.limits.clone(),
        open: Box::new(move |context, is_checked| context.open(&source, is_checked)),
        target,
        write,
    })
}

pub(super) fn convert(arguments: ConvertArgs) -> Result<(), CommandFailed> {
    let image = arguments.image;
    run(Job {
        verb: "converted",
        open: Box::new(move |context, _| context.open_local(&image)),
        content: arguments.content,
        limits: arguments.limits,
        target: arguments.target,
        write: arguments.write,
    })
}

fn run(job: Job) -> Result<(), CommandFailed> {
    let verb = job.verb;
    let display = Display::begin(super::PROGRAM, job.write.shown.progress, &job.write.shown.output);
    let watch = Arc::new(Watch::default());
    let observer = Arc::clone(&watch);
    let started = Instant::now();
    let result = display.during(View::new(watch), || {
        super::on_runtime(move |context| transfer(job, &context, observer))
    });
    let time = started.elapsed();
    match &result {
        Ok(report) => display.conclude(|| summary(verb, report, time), &done(report, time)),
        Err(failed) => display.conclude_failed(&Event::Error {
            message: failed.to_string(),
            stage: failed.stage(),
            code: failed.exit().code(),
        }),
    }
    result.map(drop)
}

fn transfer(job: Job, context: &Context, observer: Arc<dyn Observer>) -> Result<Report, CommandFailed> {
    let arguments = &job.write;
    // Before the source is opened: a wrong use costs no request.
    let target = target_options(&job.target, arguments)?;
    let reading = job::reading(&arguments.transfer, &job.limits, context, observer);
    let writing = Writing {
        route: match arguments.route {
            Route::Auto => options::Route::Auto,
            Route::OnePass => options::Route::OnePass,
        },
        scratch: arguments.scratch.clone(),
        ..job::writing(&arguments.transfer)
    };
    let content = job.content.payload();
    let source = (job.open)(context, reading.checksum.is_some())?;
    tracing::info!(
        source = source.name(),
        length = source.length(),
        "opened the source"
    );
    Ok(transfer::transfer(
        &*source, content, &target, &reading, &writing,
    )?)
}

fn target_options(path: &Path, arguments: &WriteArgs) -> Result<disk::Options, CommandFailed> {
    if arguments.size.is_some() && disk::is_block_device(path) {
        return Err(CommandFailed::Usage(
            "--size is for files: a block device has its own size".to_owned(),
        ));
    }
    Ok(disk::Options {
        path: path.to_owned(),
        available: arguments.size.unwrap_or(u64::MAX),
        size: arguments.size,
        preallocate: arguments.preallocate,
        cache: match (arguments.direct, arguments.cached) {
            (true, _) => disk::Cache::Direct,
            (_, true) => disk::Cache::Page,
            _ => disk::Cache::Auto,
        },
        overwrite: arguments.force,
        mode: None,
    })
}

/// `imported gzip > qcow2 (one-pass): 4.00 GiB virtual, 1.30 GiB written, 1.35 GiB read in 2.1 s (643.00 MiB/s)`
fn summary(verb: &str, report: &Report, time: Duration) -> String {
    format!(
        "{verb} {} ({}): {} virtual, {} written, {} read in {:.1} s ({}/s){}",
        super::kinds(&report.facts),
        report.facts.route,
        BinaryBytes(report.virtual_size),
        BinaryBytes(report.written_bytes),
        BinaryBytes(report.source_bytes),
        time.as_secs_f64(),
        BinaryBytes(bytes_per_second(report.source_bytes, time)),
        super::verified(report.checksum.as_deref()),
    )
}

fn done(report: &Report, time: Duration) -> Event<'_> {
    Event::Done {
        layers: &report.facts.layers,
        format: report.facts.format.to_string(),
        route: report.facts.route.to_string(),
        virtual_size: report.virtual_size,
        disk_size: report.disk_size,
        source_bytes: report.source_bytes,
        written_bytes: report.written_bytes,
        preallocated: report.preallocated,
        peak_held_bytes: report.peak_held_bytes,
        checksum: report.checksum.as_deref(),
        seconds: time.as_secs_f64(),
    }
}
