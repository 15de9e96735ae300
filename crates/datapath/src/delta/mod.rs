//! Applies deltas: differences to an existing disk, either as a qcow2 image or as changed ranges.
//!
//! The disk is changed in place. That is not atomic, but it can be repeated: a delta defines the
//! final value of the bytes it contains, so applying it again after an interruption leads to the
//! same disk. After a failure nothing is hidden or removed, because the disk may be the only copy
//! of the earlier stages.

mod changed;
mod qcow2;

use codec::input::TransferInput;
use stream::error::Error;
use stream::facts::ImageFacts;
use stream::memory;
use stream::observe::{ByteCount, Stage, TransferPhase};
use stream::options::ReadOptions;
use stream::source::Source;

use crate::disk::{Disk, DiskOptions};
use crate::options::WriteOptions;
use crate::transfer::TransferReport;

/// The disk to which a delta is applied.
#[derive(Debug, Clone)]
pub struct DeltaBase {
    /// The regular file or block device that holds the base. It is changed in place, so the
    /// options for new files have no effect.
    pub disk: DiskOptions,
    /// The name that a qcow2 delta must give for its backing file, without directories. `None` for
    /// a delta that must not name one.
    pub name: Option<String>,
    /// True if a file may be larger than the delta's disk, because a pod has grown it to the size
    /// of its volume. Otherwise such a file is refused as the base of another delta.
    pub may_be_larger: bool,
}

/// Applies the delta in `source` to the disk of `base`. Returns when everything is on the disk.
/// Errors in the head of the delta, above all a wrong base, are found before the disk is touched.
pub fn apply_delta(
    source: &dyn Source,
    base: &DeltaBase,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<TransferReport, Error> {
    match source.changed_ranges() {
        Some(changes) => changed::apply_changes(source, changes, base, reading, writing),
        None => qcow2::apply_qcow2(source, base, reading, writing),
    }
}

/// Opens the disk of `base` for a delta to a disk of `virtual_size` bytes. The base stays visible,
/// since applying the delta again repairs an interruption.
fn open_base(base: &DeltaBase, virtual_size: u64) -> Result<Disk, Error> {
    let disk = Disk::open_in_place(&base.disk, virtual_size)?;
    if !base.may_be_larger {
        disk.check_is_base(virtual_size)?;
    }
    Ok(disk)
}

/// Ends a delta after all its data was passed to `disk`: verifies the rest of the source and waits
/// until everything is on the disk.
fn finish_delta(
    facts: ImageFacts,
    virtual_size: u64,
    mut input: TransferInput,
    disk: Disk,
    reading: &ReadOptions,
) -> Result<TransferReport, Error> {
    let checksum = input.finish_reading()?;
    reading.check_stop()?;
    let readings = input.readings();
    disk.report_progress(&readings);
    let written_bytes = readings.time_stage(Stage::Target, || disk.commit_in_place())?;
    reading.observer.record_bytes(ByteCount::Target, written_bytes);
    reading.observer.begin_phase(TransferPhase::Complete);
    Ok(TransferReport {
        facts,
        virtual_size,
        disk_size: virtual_size,
        source_bytes: readings.position(),
        written_bytes,
        checksum,
        preallocated: false,
        peak_held_bytes: memory::peak_bytes(),
    })
}

/// Returns the name of a backing file without its directories.
pub(crate) fn last_part(backing_file: &str) -> &str {
    backing_file.rsplit('/').next().unwrap_or_default()
}
