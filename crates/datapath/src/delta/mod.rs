//! Deltas: the difference to a disk which is there already, as a qcow2 image or as the ranges that changed.
//!
//! The disk is changed in place. That is not atomic, yet it can be repeated: a delta says what the bytes that it
//! has are to be, so applying it again after an interruption leads to the same disk. Nothing is hidden or removed when
//! it fails, for the disk below may be all that there is of the earlier stages.

mod changed;
mod qcow2;

use std::path::PathBuf;

use crate::disk::{self, CacheMode, Disk};
use crate::error::Error;
use crate::facts::ImageFacts;
use crate::input::TransferInput;
use crate::observe::{ByteCount, Stage, TransferPhase};
use crate::options::{ReadOptions, WriteOptions};
use crate::source::Source;

/// The disk that a delta is applied to.
#[derive(Debug, Clone)]
pub struct DeltaBase {
    /// A regular file or block device that holds the base.
    pub path: PathBuf,
    /// Bytes that the disk may have at most; a device's size limits it too.
    pub available: u64,
    /// The name that a qcow2 image must give its backing file, folders aside.
    pub name: String,
    /// True if what becomes zero stays allocated.
    pub preallocated: bool,
    /// Use of the page cache.
    pub cache: CacheMode,
}

impl DeltaBase {
    fn target_options(&self) -> disk::DiskOptions {
        disk::DiskOptions {
            path: self.path.clone(),
            available: self.available,
            size: None,
            preallocate: self.preallocated,
            cache: self.cache,
            overwrite: false,
            mode: None,
        }
    }
}

/// Figures of a delta that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaReport {
    /// Facts about the delta.
    pub facts: ImageFacts,
    /// Bytes of the virtual disk.
    pub virtual_size: u64,
    /// Source bytes that were consumed (or skipped).
    pub source_bytes: u64,
    /// Bytes that were written to the disk, zeros included.
    pub written_bytes: u64,
    /// The digest of the whole object, if one was asked for.
    pub checksum: Option<String>,
}

/// Applies the delta in `source` to the disk of `base`. Returns when it is on the disk. Whatever is wrong with the
/// delta's head, its base above all, is found before the disk is touched.
pub fn apply_delta(
    source: &dyn Source,
    base: &DeltaBase,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<DeltaReport, Error> {
    match source.changed_ranges() {
        Some(changes) => changed::apply_changes(source, changes, base, reading, writing),
        None => qcow2::apply_qcow2(source, base, reading, writing),
    }
}

/// The end of a delta of which all data was handed to `disk`: the rest of the source is verified, and everything gets onto the disk.
fn finish_delta(
    facts: ImageFacts,
    virtual_size: u64,
    mut input: TransferInput,
    disk: Disk,
    reading: &ReadOptions,
) -> Result<DeltaReport, Error> {
    let checksum = input.finish_reading()?;
    reading.check_stop()?;
    disk.report_progress(&*reading.observer);
    let readings = input.readings();
    let written_bytes = readings.time_stage(Stage::Target, || disk.commit_in_place())?;
    reading.observer.record_bytes(ByteCount::Target, written_bytes);
    reading.observer.begin_phase(TransferPhase::Complete);
    Ok(DeltaReport { facts, virtual_size, source_bytes: readings.position(), written_bytes, checksum })
}
