//! Runs `cdi-importer import`, and also `convert`, which does the same for images on this machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use datapath::disk::{self, DiskOptions};
use datapath::disk_stream::write_qcow2;
use datapath::options::{ReadRoute, WriteOptions};
use datapath::transfer::{self, TransferReport};
use program::progress::{BinaryBytes, ProgressArgs, bytes_per_second};
use stream::options::ReadOptions;
use stream::source::Source;
use volume::limits::TransferLimits;

use super::args::{ContentArgs, ConvertArgs, DiskFormat, ImportArgs, RouteOption, WriteArgs};
use super::event::ImportEvent;
use super::evidence;
use super::failure::{ImporterCommandError, of_source, usage_error};
use super::job;
use super::open::JobContext;
use super::target;
use super::watch::TransferWatch;

pub(super) fn run_import(arguments: ImportArgs) -> Result<(), ImporterCommandError> {
    let ImportArgs { source, evidence, target, write } = arguments;
    require_raw(&write)?;
    let limits = source.limits.clone();
    write_disk("imported", limits, target, write, move |context, target, reading, writing| {
        let (opened, reading) = evidence::open_image(context, &source, &evidence, reading)?;
        transfer_source(&*opened, &source.content, target, &reading, writing)
    })
}

/// Fails for an output format that only `convert` writes.
pub(super) fn require_raw(arguments: &WriteArgs) -> Result<(), ImporterCommandError> {
    match arguments.output_format {
        Some(DiskFormat::Qcow2) => Err(usage_error(
            "this command writes raw disks: make qcow2 of one with cdi-importer convert",
        )),
        _ => Ok(()),
    }
}

pub(super) fn run_convert(mut arguments: ConvertArgs) -> Result<(), ImporterCommandError> {
    let image = arguments.image;
    if image.to_str().is_some_and(|image| image.contains("://")) {
        let (image, target) = (image.display(), arguments.target.display());
        let what = format!(
            "{image} is an address, and convert is for images on this machine: use cdi-importer import {image} {target}"
        );
        return Err(usage_error(what));
    }
    if target::has_extension(&arguments.target, "qcow2") {
        arguments.write.output_format.get_or_insert(DiskFormat::Qcow2);
    }
    let format = arguments.write.output_format.unwrap_or(DiskFormat::Raw);
    let compression = arguments.compression;
    if format == DiskFormat::Qcow2 {
        refuse_raw_options(&arguments.target, &arguments.write)?;
    } else if compression.is_some() {
        let what =
            "--compression is for qcow2: name the target FILE.qcow2, or pass --output-format qcow2";
        return Err(usage_error(what));
    }
    let ConvertArgs { target, content, limits, write, .. } = arguments;
    write_disk("converted", limits, target, write, move |context, target, reading, writing| {
        let opened = context.open_local(&image)?;
        if format == DiskFormat::Raw {
            return transfer_source(&*opened, &content, target, reading, writing);
        }
        let name = opened.name();
        tracing::info!(source = name, length = opened.total_bytes(), "opened the source");
        let (kind, compression) = (content.payload_kind(), compression.unwrap_or_default());
        let written = write_qcow2(opened, kind, compression, target, reading, writing);
        written.map_err(of_source(|| name))
    })
}

/// Fails for options and targets that only a raw disk can have.
fn refuse_raw_options(target: &Path, arguments: &WriteArgs) -> Result<(), ImporterCommandError> {
    let options = [(arguments.size.is_some(), "--size"), (arguments.preallocate, "--preallocate")];
    if let Some((_, option)) = options.into_iter().find(|(is_given, _)| *is_given) {
        let what = format!("{option} is for raw disks: pass --output-format raw, or leave it out");
        return Err(usage_error(what));
    }
    if disk::is_block_device(target) {
        let target = target.display();
        let what =
            format!("{target} is a block device, but qcow2 is written to a file: name a file");
        return Err(usage_error(what));
    }
    Ok(())
}

fn transfer_source(
    source: &dyn Source,
    content: &ContentArgs,
    target: &DiskOptions,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<TransferReport, ImporterCommandError> {
    tracing::info!(source = source.name(), length = source.total_bytes(), "opened the source");
    let transferred =
        transfer::transfer_image(source, content.payload_kind(), target, reading, writing);
    transferred.map_err(of_source(|| source.name()))
}

/// Runs a command that writes a whole disk to `target`. `work` opens the source after the runtime
/// has started, and writes its disk. `verb` is a past participle for the summary line, such as
/// `imported`.
pub(super) fn write_disk(
    verb: &'static str,
    limits: TransferLimits,
    target: PathBuf,
    arguments: WriteArgs,
    work: impl FnOnce(
        &JobContext,
        &DiskOptions,
        &ReadOptions,
        &WriteOptions,
    ) -> Result<TransferReport, ImporterCommandError>
    + Send
    + 'static,
) -> Result<(), ImporterCommandError> {
    let has_rate = limits.limit_rate.is_some();
    let ProgressArgs { progress, output } = arguments.shown.clone();
    let run = move |context: &JobContext| {
        // The target is checked before the source is opened, so that a mistake on the command line
        // causes no request.
        let target = target_options(&target, &arguments)?;
        let reading = job::read_options(&arguments.transfer, &limits, context);
        let writing = WriteOptions {
            route: match arguments.route {
                RouteOption::Auto => ReadRoute::Auto,
                RouteOption::OnePass => ReadRoute::OnePass,
            },
            scratch: arguments.scratch.clone(),
            ..job::write_options(&arguments.transfer)
        };
        work(context, &target, &reading, &writing)
    };
    job::run_job(progress, &output, run, |display, report, time, watch| {
        let limits = || watch.times().limits_suffix(time, has_rate);
        let done = done_event(report, time, watch, display.warnings());
        let rate = format!(" ({}/s)", BinaryBytes(bytes_per_second(report.source_bytes, time)));
        display.show_summary(|| summary_line(verb, report, time, &rate) + &limits(), &done);
    })
}

fn target_options(path: &Path, arguments: &WriteArgs) -> Result<DiskOptions, ImporterCommandError> {
    target::check_target(path)?;
    if arguments.output_format.is_none() {
        target::check_name(path)?;
    }
    if arguments.size.is_some() && disk::is_block_device(path) {
        return Err(usage_error("--size is for files: a block device has its own size"));
    }
    Ok(DiskOptions {
        path: path.to_owned(),
        available: arguments.size.unwrap_or(u64::MAX),
        counts_stored: false,
        size: arguments.size,
        preallocate: arguments.preallocate,
        cache: match (arguments.direct, arguments.cached) {
            (true, _) => disk::CacheMode::Direct,
            (_, true) => disk::CacheMode::Page,
            _ => disk::CacheMode::Auto,
        },
        overwrite: arguments.force,
        mode: None,
    })
}

/// Returns the line that reports a success, such as `imported gzip > qcow2: 4.00 GiB virtual,
/// 1.30 GiB written, 1.35 GiB read in 2.1 s (643.00 MiB/s)`. `rate` is the part in parentheses.
pub(super) fn summary_line(
    verb: &str,
    report: &TransferReport,
    time: Duration,
    rate: &str,
) -> String {
    format!(
        "{verb} {}: {} virtual, {} written, {} read in {:.1} s{rate}{}",
        super::format_chain(&report.facts),
        BinaryBytes(report.virtual_size),
        BinaryBytes(report.written_bytes),
        BinaryBytes(report.source_bytes),
        time.as_secs_f64(),
        super::checksum_suffix(report.checksum.as_deref()),
    )
}

fn done_event<'r>(
    report: &'r TransferReport,
    time: Duration,
    watch: &TransferWatch,
    warnings: Vec<String>,
) -> ImportEvent<'r> {
    ImportEvent::Done {
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
        stage_seconds: watch.times().stage_seconds(),
        limited_seconds: watch.times().limited_seconds(),
        retries: watch.retries(),
        warnings,
    }
}
