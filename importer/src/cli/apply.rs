//! Runs `cdi-importer apply`, which applies a delta to its base disk.

use std::time::Duration;

use datapath::delta::{self, DeltaReport};
use datapath::disk::CacheMode;
use program::progress::BinaryBytes;

use super::args::ApplyArgs;
use super::failure::{ImporterCommandError, of_source};
use super::job;
use super::open::JobContext;
use super::target;

pub(super) fn run(arguments: ApplyArgs) -> Result<(), ImporterCommandError> {
    // After a failure the disk stays in place, so that the delta can be applied again.
    job::run_job(&arguments.job.clone(), move |context| apply_delta(&arguments, context), summary_line)
}

fn apply_delta(arguments: &ApplyArgs, context: &JobContext) -> Result<DeltaReport, ImporterCommandError> {
    target::check_target(&arguments.target)?;
    let limits = &arguments.source.limits;
    let reading = job::read_options(&arguments.job.transfer, limits, context);
    let is_checked = reading.checksum.is_some();
    let source =
        job::open_source(&arguments.source, context, is_checked, "a delta is qcow2, or a VMware disk")?;
    let is_qcow2_chosen = arguments.base.is_some() || arguments.no_backing_name;
    if source.changed_ranges().is_none() && (source.is_disk() || !is_qcow2_chosen) {
        let what = "a delta is a qcow2 image whose base --base names (or --no-backing-name, if it names none), or a VMware disk with --previous-checkpoint";
        return Err(ImporterCommandError::Usage(what.to_owned()));
    }
    let base = delta::DeltaBase {
        path: arguments.target.clone(),
        available: u64::MAX,
        name: arguments.base.clone(),
        preallocated: false,
        cache: CacheMode::Auto,
    };
    let applied = delta::apply_delta(&*source, &base, &reading, &job::write_options(&arguments.job.transfer));
    applied.map_err(of_source(|| source.name()))
}

/// Returns the line that reports a success, such as `applied qcow2 (ranged): 4.00 GiB virtual,
/// 1.30 MiB written, 1.35 MiB read in 0.1 s`.
fn summary_line(report: &DeltaReport, time: Duration) -> String {
    format!(
        "applied {} ({}): {} virtual, {} written, {} read in {:.1} s{}",
        super::format_chain(&report.facts),
        report.facts.route,
        BinaryBytes(report.virtual_size),
        BinaryBytes(report.written_bytes),
        BinaryBytes(report.source_bytes),
        time.as_secs_f64(),
        super::checksum_suffix(report.checksum.as_deref()),
    )
}
