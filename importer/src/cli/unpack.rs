//! `cdi-importer unpack`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::logging::{self, LogFormat, LogOptions};
use datapath::archive::{self, Report};
use datapath::observe::Observer;
use datapath::{target, transfer};
use indicatif::BinaryBytes;

use super::args::{Progress, UnpackArgs};
use super::failure::Failure;
use super::open::Context;
use super::progress::{Display, Reporter, bytes_per_second};
use super::watch::Watch;

pub(super) fn run(arguments: UnpackArgs) -> Result<(), Failure> {
    let display = Display::choose(Progress::Auto, arguments.quiet);
    logging::init_with(
        LogOptions {
            format: LogFormat::Plain,
            verbosity: arguments.log.verbosity(),
            program: super::PROGRAM,
        },
        display.log_writer(),
    );
    let is_quiet = arguments.quiet;
    let watch = Arc::new(Watch::default());
    let observer = Arc::clone(&watch);
    let started = Instant::now();
    let reporter = Reporter::start(display, watch);
    // What is not complete is not visible, and the next attempt removes it.
    let result = super::on_runtime(move |context| unpack(&arguments, &context, observer), || {});
    reporter.finish();
    let report = result?;
    if !is_quiet {
        super::print(format!("{}\n", summary(&report, started.elapsed())).as_bytes())?;
    }
    Ok(())
}

fn unpack(arguments: &UnpackArgs, context: &Context, observer: Arc<dyn Observer>) -> Result<Report, Failure> {
    if arguments.source.format.is_some() {
        return Err(Failure::Usage(
            "--format is for images: an archive is a tar".to_owned(),
        ));
    }
    let target = archive::Options {
        dir: arguments.dir.clone(),
        available: target::free_space(&arguments.dir).map_err(datapath::Error::from)?,
    };
    let options = transfer::Options {
        checksum: arguments.checksum.clone(),
        limit_rate: arguments.limit_rate,
        workers: arguments.threads.unwrap_or_else(worker::work::data_threads),
        stop: context.stop.clone(),
        observer,
        ..transfer::Options::default()
    };
    let source = context.open(&arguments.source, options.checksum.is_some())?;
    tracing::info!(
        source = source.name(),
        length = source.length(),
        "opened the source"
    );
    Ok(archive::unpack(&*source, &target, &options)?)
}

/// `unpacked gzip > tar: 1200 entries, 1.30 GiB of data, 400.00 MiB read in 2.1 s (190.00 MiB/s)`
fn summary(report: &Report, time: Duration) -> String {
    format!(
        "unpacked {}: {} entries, {} of data, {} read in {:.1} s ({}/s){}",
        report.layers.join(" > "),
        report.entries,
        BinaryBytes(report.data_bytes),
        BinaryBytes(report.source_bytes),
        time.as_secs_f64(),
        BinaryBytes(bytes_per_second(report.source_bytes, time)),
        report
            .checksum
            .as_ref()
            .map_or_else(String::new, |checksum| format!(", {checksum} verified")),
    )
}
