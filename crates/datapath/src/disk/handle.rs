//! The open disk: positional writes from any thread, the held first MiB, and the commit.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stream::error::{Error, TargetError};
use stream::marks::HELD_BYTES;
use stream::meter::MeterReadings;
use stream::observe::{ByteCount, LimitingPart, SharedTime, Stage};
use stream::zeros::{ZERO_BLOCK, data_runs};

use super::direct::DirectFile;
use super::pacer::FlushPacer;
use super::unfinished::UnfinishedFile;

/// A target that is being written. If it is dropped without [`Disk::commit`], a file is removed
/// and a device keeps a zeroed first MiB.
#[derive(Debug)]
pub struct Disk {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) direct: Option<DirectFile>,
    pub(super) pacer: FlushPacer,
    /// True for a block device.
    pub(super) is_device: bool,
    /// Largest size of the disk in bytes.
    pub(super) capacity: u64,
    /// True if the capacity limits the stored bytes instead of the size of the disk.
    pub(super) counts_stored: bool,
    pub(super) preallocate: bool,
    /// True if ranges that are not written read as zeros.
    pub(super) zeroed: bool,
    /// The received part of the first [`HELD_BYTES`].
    pub(super) held: Mutex<Vec<u8>>,
    pub(super) written: AtomicU64,
    /// Bytes that were zeroed without being written.
    pub(super) zeroed_bytes: AtomicU64,
    /// Times that have not yet been reported to the observer.
    pub(super) busy: BusyTimes,
    /// The file, until it is complete. `None` for devices and for disks that are changed in place,
    /// which are never removed.
    pub(super) unfinished: Option<Arc<UnfinishedFile>>,
    /// True if an existing disk is changed in place: no part of it is held back, hidden or
    /// removed.
    pub(super) in_place: bool,
    /// End of the data that an earlier attempt left after the first [`HELD_BYTES`]; 0 if it left
    /// none.
    pub(super) kept_end: u64,
}

/// Time spent at the target, summed over all threads.
#[derive(Debug, Default)]
pub(super) struct BusyTimes {
    /// Time of writing and zeroing.
    writing: SharedTime,
    /// Time of inflating compressed clusters, which the writing threads do.
    pub(super) inflating: SharedTime,
    /// Time that the feeding thread spent waiting for the target and the writing threads.
    waiting: SharedTime,
}

impl Disk {
    /// Bytes written so far, including zeros that had to be written.
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Reports to the observer how much was written, how long it took, and how long the feeding
    /// thread waited. Must be called on that thread, in the stage that waited.
    pub(crate) fn report_progress(&self, readings: &MeterReadings) {
        let observer = readings.observer();
        observer.record_bytes(ByteCount::Target, self.written_bytes());
        if self.in_place {
            observer.record_bytes(ByteCount::Skipped, self.zeroed_bytes.load(Ordering::Relaxed));
        }
        let (writing, inflating) = (self.busy.writing.take_time(), self.busy.inflating.take_time());
        observer.record_time(Stage::Target, writing);
        observer.record_time(Stage::Format, inflating);
        // The writing threads also inflate, so a wait for them is divided like their work.
        let waited = self.busy.waiting.take_time();
        let decoding = waited.mul_f64(share_of(inflating, writing));
        readings.record_limit(LimitingPart::Decoder, decoding);
        readings.record_limit(LimitingPart::Target, waited.saturating_sub(decoding));
    }

    /// Runs `work` on the feeding thread, which waits for the target meanwhile.
    pub(crate) fn time_wait<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let value = work();
        self.add_wait(began.elapsed());
        value
    }

    /// Records that the feeding thread waited for the target for `time`.
    pub(super) fn add_wait(&self, time: Duration) {
        self.busy.waiting.add_time(time);
    }

    /// Runs `work` and counts its time as writing.
    pub(super) fn time_write<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let value = work();
        self.busy.writing.add_time(began.elapsed());
        value
    }

    /// True if ranges that are not written read as zeros, so that zeros in the data need not be
    /// written.
    pub(crate) fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    /// Size of the area that may hold temporary data until the final data is written; 0 for a disk
    /// that is changed in place.
    pub(crate) fn spare_capacity(&self) -> u64 {
        if self.in_place { 0 } else { self.capacity }
    }

    /// Bytes after the first [`HELD_BYTES`] that are kept from an earlier attempt.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_end.saturating_sub(HELD_BYTES)
    }

    /// True for a block device.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    /// Reads data that was written earlier. Must not be used for the held part.
    pub(crate) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), TargetError> {
        self.file.read_exact_at(bytes, offset).map_err(|source| self.target_error("read", source))
    }

    /// Stores the part of `bytes` that lies in the first MiB. Returns the rest, if any.
    pub(super) fn hold_back<'a>(&self, offset: u64, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let room = usize::try_from(HELD_BYTES.saturating_sub(offset)).unwrap_or(0);
        let (kept, rest) = bytes.split_at(room.min(bytes.len()));
        if !kept.is_empty() {
            // The offset is below HELD_BYTES, so it fits.
            let start = usize::try_from(offset).unwrap_or(0);
            let mut held = self.held.lock();
            let end = start + kept.len();
            if held.len() < end {
                *held = resized_bytes(&held, end);
            }
            held[start..end].copy_from_slice(kept);
        }
        (!rest.is_empty()).then_some(rest)
    }

    /// Adds the numbers to `error` if the filesystem is full.
    pub(crate) fn explain_full(&self, error: Error) -> Error {
        match error {
            Error::Target(full) if full.is_no_space() && !self.is_device => {
                full.with_space(self.written_bytes(), self.capacity).into()
            }
            other => other,
        }
    }

    pub(super) fn set_len(&self, size: u64) -> Result<(), TargetError> {
        self.file.set_len(size).map_err(|source| self.target_error("resize", source))
    }

    /// Gives a file its final size: the size of the disk, or `grow_to` if that is larger. Returns
    /// the final size. A device keeps its own size.
    pub fn resize(&self, virtual_size: u64, grow_to: Option<u64>) -> Result<u64, Error> {
        if self.is_device {
            return Ok(virtual_size);
        }
        let size = virtual_size.max(grow_to.unwrap_or(0));
        self.set_len(size)?;
        if self.preallocate && !self.allocate_range(virtual_size..size)? {
            self.write_zeros(virtual_size..size)?;
        }
        Ok(size)
    }

    /// Makes the disk complete. First syncs everything else, then writes and syncs the first MiB
    /// except for its first block, and writes that block last. Must be called when nothing else
    /// can fail any more. Returns the number of bytes written.
    ///
    /// If the system nevertheless reports an error, the target may already hold the whole disk, so
    /// its first MiB is zeroed again. A file is also removed, unless that fails too.
    pub fn commit(self, virtual_size: u64, mode: Option<u32>) -> Result<u64, Error> {
        let failure = match self.commit_held(virtual_size, mode) {
            Ok(()) => return Ok(self.written_bytes()),
            Err(Error::Target(error)) => match self.zero_head(false) {
                Err(hiding) if self.is_device => error.still_visible(&hiding),
                _ => error,
            }
            .into(),
            Err(error) => error,
        };
        if let Some(unfinished) = &self.unfinished {
            unfinished.remove_after_commit();
        }
        Err(self.explain_full(failure))
    }

    fn commit_held(&self, virtual_size: u64, mode: Option<u32>) -> Result<(), Error> {
        let held = std::mem::take(&mut *self.held.lock());
        let held = resized_bytes(&held, usize::try_from(virtual_size.min(HELD_BYTES)).unwrap_or(0));
        let first_block = held.len().min(usize::try_from(ZERO_BLOCK).unwrap_or(0));
        let (first, rest) = held.split_at(first_block);
        // Commit in three steps, because writing a MiB is not atomic: a power failure keeps only
        // some of its pages, and a kill can end it between two pages. The first sync may take
        // minutes, and the next one a few milliseconds. A superblock at 4 KiB (md, bcachefs) or 64
        // KiB (Btrfs) must not exist before the data that it describes.
        self.sync()?;
        self.commit_part(first_block as u64, rest)?;
        self.sync()?;
        self.commit_part(0, first)?;
        // Others may open the file only now that it is complete. The sync below covers the mode
        // too.
        if let Some(mode) = mode
            && !self.is_device
        {
            self.file
                .set_permissions(std::fs::Permissions::from_mode(mode))
                .map_err(|source| self.target_error("change permissions of", source))?;
        }
        self.sync()?;
        if let Some(unfinished) = &self.unfinished {
            unfinished.mark_complete(&self.file)?;
        }
        Ok(())
    }

    /// Ends a change in place: waits until everything is on the disk. Returns the number of bytes
    /// written.
    pub(crate) fn commit_in_place(self) -> Result<u64, Error> {
        self.sync()?;
        Ok(self.written_bytes())
    }

    /// Ends a disk that [`Disk::open_scratch`] created, and returns its file. Nothing is synced,
    /// because nobody reads the file after a crash.
    pub(crate) fn into_scratch_file(self, virtual_size: u64) -> Result<File, TargetError> {
        let held = std::mem::take(&mut *self.held.lock());
        self.commit_part(0, &held)?;
        self.set_len(virtual_size)?;
        self.file.try_clone().map_err(|source| self.target_error("open", source))
    }

    fn commit_part(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        if !self.zeroed {
            return self.write_cached(offset, bytes);
        }
        // Write only data, because the disk reads as zeros elsewhere, and holes save space.
        for run in data_runs(offset, std::iter::once(bytes)) {
            self.write_cached(offset + run.start as u64, &bytes[run])?;
        }
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub(super) fn sync(&self) -> Result<(), TargetError> {
        // `fdatasync` would not suffice, since it need not write the file's mode (fsync(2)).
        self.file.sync_all().map_err(|source| self.target_error("fsync", source))
    }

    pub(super) fn count_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn target_error(&self, action: &'static str, source: io::Error) -> TargetError {
        TargetError::new(action, &self.path, source)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            unfinished.remove();
        }
    }
}

/// Returns the share of `part` in the sum of `part` and `rest`, between 0 and 1; 0 if both are 0.
fn share_of(part: Duration, rest: Duration) -> f64 {
    let whole = part.saturating_add(rest);
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

/// Returns a copy of `bytes`, truncated or padded with zeros to `length`. The zeros come from the
/// allocator, because `Vec::resize` would write them one by one in debug builds.
fn resized_bytes(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut resized = vec![0; length];
    let kept = length.min(bytes.len());
    resized[..kept].copy_from_slice(&bytes[..kept]);
    resized
}

#[cfg(test)]
mod tests {
    use stream::observe::{Observer, TransferTimes};

    use super::*;
    use crate::disk::{CacheMode, DiskOptions};

    #[derive(Default)]
    struct ObservedTimes(TransferTimes);

    impl Observer for ObservedTimes {
        fn record_limit(&self, part: LimitingPart, time: Duration) {
            self.0.add_limit(part, time);
        }
    }

    #[test]
    fn a_wait_for_threads_that_inflate_is_shared_by_the_decoder_and_the_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let options = DiskOptions { cache: CacheMode::Page, ..DiskOptions::new(&path, 1 << 20) };
        let disk = Disk::open(&options, Some(1 << 20)).unwrap();
        let times = Arc::new(ObservedTimes::default());
        let readings = MeterReadings::reporting_to(Arc::clone(&times) as _);
        let second = Duration::from_secs(1);
        disk.add_wait(2 * second);
        disk.busy.inflating.add_time(3 * second);
        disk.busy.writing.add_time(second);
        disk.report_progress(&readings);
        // Nobody inflates in this interval, and the last write has not ended yet.
        disk.add_wait(second);
        disk.report_progress(&readings);
        disk.report_progress(&readings);
        let limits = times.0.limit_times().map(|(_, time)| time);
        assert_eq!(limits, [Duration::ZERO, 3 * second / 2, 3 * second / 2]);
    }
}
