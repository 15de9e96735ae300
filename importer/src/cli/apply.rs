//! `cdi-importer apply`.

use std::sync::Arc;
use std::time::Duration;

use datapath::delta::{self, Report};
use datapath::disk::Cache;
use datapath::observe::Observer;
use indicatif::BinaryBytes;

use super::args::ApplyArgs;
use super::failure::CommandFailed;
use super::job;
use super::open::Context;

pub(super) fn run(arguments: ApplyArgs) -> Result<(), CommandFailed> {
    // The disk stays, whatever happens: the delta can be applied again.
    job::run(
        &arguments.job.clone(),
        move |context, observer| apply(&arguments, context, observer),
        summary,
    )
}

fn apply(
    arguments: &ApplyArgs,
    context: &Context,
    observer: Arc<dyn Observer>,
) -> Result<Report, CommandFailed> {
    let limits = &arguments.source.limits;
    let reading = job::reading(&arguments.job.transfer, limits, context, observer);
    let is_checked = reading.checksum.is_some();
    let source = job::open(
        &arguments.source,
        context,
        is_checked,
        "a delta is qcow2, or a VMware disk",
    )?;
    let base = arguments.base.clone();
    if source.changes().is_none() && (source.is_disk() || base.is_none()) {
        let what =
            "a delta is a qcow2 image whose base --base names, or a VMware disk with --previous-checkpoint";
        return Err(CommandFailed::Usage(what.to_owned()));
    }
    let base = delta::Base {
        path: arguments.target.clone(),
        available: u64::MAX,
        name: base.unwrap_or_default(),
        preallocated: false,
        cache: Cache::Auto,
    };
    Ok(delta::apply(
        &*source,
        &base,
        &reading,
        &job::writing(&arguments.job.transfer),
    )?)
}

/// `applied qcow2 (ranged): 4.00 GiB virtual, 1.30 MiB written, 1.35 MiB read in 0.1 s`
fn summary(report: &Report, time: Duration) -> String {
    format!(
        "applied {} ({}): {} virtual, {} written, {} read in {:.1} s{}",
        super::kinds(&report.facts),
        report.facts.route,
        BinaryBytes(report.virtual_size),
        BinaryBytes(report.written_bytes),
        BinaryBytes(report.source_bytes),
        time.as_secs_f64(),
        super::verified(report.checksum.as_deref()),
    )
}
