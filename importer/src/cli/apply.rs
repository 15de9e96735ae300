//! `cdi-importer apply`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::logging::{self, LogFormat, LogOptions};
use datapath::delta::{self, Report};
use datapath::observe::Observer;
use datapath::target::Cache;
use datapath::transfer;
use indicatif::BinaryBytes;

use super::args::{ApplyArgs, Progress};
use super::failure::Failure;
use super::open::Context;
use super::progress::{Display, Reporter};
use super::watch::Watch;

pub(super) fn run(arguments: ApplyArgs) -> Result<(), Failure> {
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
    // The disk stays, whatever happens: the delta can be applied again.
    let result = super::on_runtime(move |context| apply(&arguments, &context, observer), || {});
    reporter.finish();
    let report = result?;
    if !is_quiet {
        super::print(format!("{}\n", summary(&report, started.elapsed())).as_bytes())?;
    }
    Ok(())
}

fn apply(arguments: &ApplyArgs, context: &Context, observer: Arc<dyn Observer>) -> Result<Report, Failure> {
    if arguments.source.format.is_some() {
        return Err(Failure::Usage(
            "--format is for images: a delta is qcow2".to_owned(),
        ));
    }
    let base = delta::Base {
        path: arguments.target.clone(),
        available: u64::MAX,
        name: arguments.base.clone(),
        cache: Cache::Auto,
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
    Ok(delta::apply(&*source, &base, &options)?)
}

/// `applied qcow2 (ranged): 4.00 GiB virtual, 1.30 MiB written, 1.35 MiB read in 0.1 s`
fn summary(report: &Report, time: Duration) -> String {
    let format = report.facts.format.to_string();
    let layers: Vec<&str> = report
        .facts
        .layers
        .iter()
        .copied()
        .chain([format.as_str()])
        .collect();
    format!(
        "applied {} ({}): {} virtual, {} written, {} read in {:.1} s{}",
        layers.join(" > "),
        report.facts.route,
        BinaryBytes(report.virtual_size),
        BinaryBytes(report.written_bytes),
        BinaryBytes(report.source_bytes),
        time.as_secs_f64(),
        report
            .checksum
            .as_ref()
            .map_or_else(String::new, |checksum| format!(", {checksum} verified")),
    )
}
