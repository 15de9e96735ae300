//! Runs `cdi-importer apply`, which applies a delta to its base disk.

use datapath::delta;
use datapath::disk::DiskOptions;
use datapath::transfer::TransferReport;
use fetch::ranges::RangesSource;
use program::progress::ProgressMode;
use sources::backup_map::{BackupType, read_backup_map};
use stream::options::ReadOptions;
use stream::source::Source;

use super::args::{ApplyArgs, BackupTypeOption};
use super::failure::{ImporterCommandError, of_source, usage_error};
use super::open::JobContext;
use super::target;
use super::{import, job};

pub(super) fn run(arguments: ApplyArgs) -> Result<(), ImporterCommandError> {
    // After a failure the disk stays in place, so that the delta can be applied again.
    let has_rate = arguments.source.limits.limit_rate.is_some();
    job::run_job(
        ProgressMode::Auto,
        &arguments.job.output.clone(),
        move |context| apply_delta(&arguments, context),
        |display, report, time, watch| {
            let limits = watch.times().limits_suffix(time, has_rate);
            display
                .show_summary(|| import::summary_line("applied", report, time, "") + &limits, &());
        },
    )
}

fn apply_delta(
    arguments: &ApplyArgs,
    context: &JobContext,
) -> Result<TransferReport, ImporterCommandError> {
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
