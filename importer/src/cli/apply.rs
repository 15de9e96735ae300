//! Runs `cdi-importer apply`, which applies a delta to its base disk.

use std::time::Duration;

use datapath::delta::{self, DeltaReport};
use datapath::disk::DiskOptions;
use fetch::ranges::RangesSource;
use program::progress::BinaryBytes;
use sources::backup_map::{BackupType, read_backup_map};
use stream::options::ReadOptions;
use stream::source::Source;

use super::args::{ApplyArgs, BackupTypeOption};
use super::failure::{ImporterCommandError, of_source, usage_error};
use super::job;
use super::open::JobContext;
use super::target;

pub(super) fn run(arguments: ApplyArgs) -> Result<(), ImporterCommandError> {
    // After a failure the disk stays in place, so that the delta can be applied again.
    let has_rate = arguments.source.limits.limit_rate.is_some();
    job::run_job(
        &arguments.job.clone(),
        move |context| apply_delta(&arguments, context),
        |report, time, times| summary(report, time) + &times.limits_suffix(time, has_rate),
    )
}

fn apply_delta(
    arguments: &ApplyArgs,
    context: &JobContext,
) -> Result<DeltaReport, ImporterCommandError> {
    target::check_target(&arguments.target)?;
    let limits = &arguments.source.limits;
    let reading = job::read_options(&arguments.job.transfer, limits, context);
    let is_checked = reading.checksum.is_some();
    let source = job::open_source(
        &arguments.source,
        context,
        is_checked,
        "a delta is qcow2, or a VMware disk",
    )?;
    let source = match arguments.backup_type {
        Some(backup) => open_ranges(arguments, backup, source, &reading)?,
        None => source,
    };
    let is_qcow2_chosen = arguments.base.is_some() || arguments.no_backing_name;
    if source.changed_ranges().is_none() && (source.stated_disk().is_some() || !is_qcow2_chosen) {
        let what = "apply expects a qcow2 delta with --base or --no-backing-name, a raw disk with --ranges, or a VMware disk with --previous-checkpoint";
        return Err(usage_error(what));
    }
    let base = delta::DeltaBase {
        disk: DiskOptions::new(&arguments.target, u64::MAX),
        name: arguments.base.clone(),
        may_be_larger: false,
    };
    let applied =
        delta::apply_delta(&*source, &base, &reading, &job::write_options(&arguments.job.transfer));
    applied.map_err(of_source(|| source.name()))
}

/// Reads only the ranges of `source` that the maps list.
fn open_ranges(
    arguments: &ApplyArgs,
    backup: BackupTypeOption,
    source: Box<dyn Source>,
    reading: &ReadOptions,
) -> Result<Box<dyn Source>, ImporterCommandError> {
    if reading.checksum.is_some() || source.changed_ranges().is_some() {
        let what = "--ranges reads a part of a disk; remove --checksum and --previous-checkpoint";
        return Err(usage_error(what));
    }
    let backup = match backup {
        BackupTypeOption::Full => BackupType::Full,
        BackupTypeOption::Incremental => BackupType::Incremental,
    };
    let memory = &reading.limits.memory;
    let (changes, grant) =
        read_backup_map(&arguments.ranges, backup, source.total_bytes(), memory)?;
    Ok(Box::new(RangesSource::new(source, changes, grant)?))
}

/// Returns the line that reports a success, such as `applied qcow2: 4.00 GiB virtual, 1.30 MiB
/// written, 1.35 MiB read in 0.1 s`.
fn summary(report: &DeltaReport, time: Duration) -> String {
    format!(
        "applied {}: {} virtual, {} written, {} read in {:.1} s{}",
        super::format_chain(&report.facts),
        BinaryBytes(report.virtual_size),
        BinaryBytes(report.written_bytes),
        BinaryBytes(report.source_bytes),
        time.as_secs_f64(),
        super::checksum_suffix(report.checksum.as_deref()),
    )
}
