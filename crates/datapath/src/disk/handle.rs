//! The open disk: positional writes from any thread, the held first MiB, the commit.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::direct::DirectFile;
use super::pacer::FlushPacer;
use super::unfinished::UnfinishedFile;
use crate::error::{Error, TargetError};
use crate::marks::HELD_BYTES;
use crate::observe::{ByteCount, Observer, SharedTime, Stage};
use crate::zeros::{ZERO_BLOCK, data_runs};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskKind {
    File,
    Device,
}

/// A target that is being written. Dropped without [`Disk::commit`], a file is removed and a device keeps a zeroed
/// first MiB.
#[derive(Debug)]
pub struct Disk {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) direct: Option<DirectFile>,
    pub(super) pacer: FlushPacer,
    pub(super) kind: DiskKind,
    /// Bytes that the disk may have.
    pub(super) capacity: u64,
    pub(super) preallocate: bool,
    /// True if what is not written reads as zeros.
    pub(super) zeroed: bool,
    /// The first [`HELD_BYTES`], as far as they were given.
    pub(super) held: Mutex<Vec<u8>>,
    pub(super) written: AtomicU64,
    /// Bytes that became zeros without being written.
    pub(super) zeroed_bytes: AtomicU64,
    /// Times that the observer was not told of yet.
    pub(super) busy: BusyTimes,
    /// The file, until it is complete; a device and a disk that is changed in place are never removed.
    pub(super) unfinished: Option<Arc<UnfinishedFile>>,
    /// True if a disk that exists is changed where it is: nothing of it is held back, hidden or removed.
    pub(super) in_place: bool,
    /// The end of what an earlier attempt has left behind the first [`HELD_BYTES`]; 0 if there is nothing.
    pub(super) kept_end: u64,
}

/// Times of work at the target, of all threads together.
#[derive(Debug, Default)]
pub(super) struct BusyTimes {
    /// Writes and zeroing.
    writing: SharedTime,
    /// Compressed clusters, which the writing threads inflate.
    pub(super) inflating: SharedTime,
}

impl Disk {
    /// Bytes that were written so far, zeros that had to be written included.
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Tells `observer` how much was written, and how long that took.
    pub(crate) fn report_progress(&self, observer: &dyn Observer) {
        observer.record_bytes(ByteCount::Target, self.written_bytes());
        if self.in_place {
            observer.record_bytes(ByteCount::Skipped, self.zeroed_bytes.load(Ordering::Relaxed));
        }
        observer.record_time(Stage::Target, self.busy.writing.take_time());
        observer.record_time(Stage::Format, self.busy.inflating.take_time());
    }

    /// Does the `work` of writing, whose time is the target's.
    pub(super) fn time_write<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let value = work();
        self.busy.writing.add_time(began.elapsed());
        value
    }

    /// True if ranges that are not written read as zeros, so that zeros in the data need no writing.
    pub fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    /// Bytes that the disk may have.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes at the end of the disk that are free until they are written.
    pub fn spare_capacity(&self) -> u64 {
        if self.in_place { 0 } else { self.capacity }
    }

    /// Bytes that were there already, behind the first [`HELD_BYTES`].
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_end.saturating_sub(HELD_BYTES)
    }

    /// True for a block device.
    pub fn is_device(&self) -> bool {
        self.kind == DiskKind::Device
    }

    /// Reads what was written earlier (never the held part).
    pub(crate) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), TargetError> {
        self.file.read_exact_at(bytes, offset).map_err(|source| self.target_error("read", source))
    }

    /// Keeps the part that lies in the first MiB; returns the rest, if any.
    pub(super) fn hold_back<'a>(&self, offset: u64, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let room = usize::try_from(HELD_BYTES.saturating_sub(offset)).unwrap_or(0);
        let (kept, rest) = bytes.split_at(room.min(bytes.len()));
        if !kept.is_empty() {
            // Below HELD_BYTES, so it fits.
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

    pub(super) fn set_len(&self, size: u64) -> Result<(), TargetError> {
        self.file.set_len(size).map_err(|source| self.target_error("resize", source))
    }

    /// Gives a file its final size: the disk, or `grow_to` if that is more. Returns the size; a device has its own.
    pub fn resize(&self, virtual_size: u64, grow_to: Option<u64>) -> Result<u64, Error> {
        if self.kind == DiskKind::Device {
            return Ok(virtual_size);
        }
        let size = virtual_size.max(grow_to.unwrap_or(0));
        self.set_len(size)?;
        if self.preallocate && !self.allocate_range(virtual_size..size)? {
            self.write_zeros(virtual_size..size)?;
        }
        Ok(size)
    }

    /// Makes the disk complete: everything else is on the disk before anything of the first MiB is
    /// written, and all but the first block before that one, which comes last of all. To be called
    /// when nothing is left that can fail. Returns all bytes written.
    ///
    /// If the system fails all the same, the target may already hold all of the disk: its first
    /// MiB is zeroed again. A file is removed besides, unless the system fails there as well.
    pub fn commit(self, virtual_size: u64, mode: Option<u32>) -> Result<u64, Error> {
        match self.commit_held(virtual_size, mode) {
            Ok(()) => Ok(self.written_bytes()),
            Err(Error::Target(error)) => Err(match self.zero_head(false) {
                Err(hiding) if self.kind == DiskKind::Device => error.still_visible(&hiding),
                _ => error,
            }
            .into()),
            Err(error) => Err(error),
        }
    }

    fn commit_held(&self, virtual_size: u64, mode: Option<u32>) -> Result<(), Error> {
        let held = std::mem::take(&mut *self.held.lock());
        let held = resized_bytes(&held, usize::try_from(virtual_size.min(HELD_BYTES)).unwrap_or(0));
        let first_block = held.len().min(usize::try_from(ZERO_BLOCK).unwrap_or(0));
        let (first, rest) = held.split_at(first_block);
        // Three steps, since no write of a MiB is one: a power cut keeps some of its pages, a kill
        // ends it between two of them. This sync may take minutes and the next one takes a few
        // milliseconds: a superblock at 4 KiB (md, bcachefs) or 64 KiB (Btrfs) must not be there
        // before what it describes.
        self.sync()?;
        self.commit_part(first_block as u64, rest)?;
        self.sync()?;
        self.commit_part(0, first)?;
        if let Some(mode) = mode
            && self.kind == DiskKind::File
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

    /// The end of a change in place: waits until it is on the disk. Returns all bytes written.
    pub fn commit_in_place(self) -> Result<u64, Error> {
        self.sync()?;
        Ok(self.written_bytes())
    }

    fn commit_part(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        if !self.zeroed {
            return self.write_cached(offset, bytes);
        }
        for run in data_runs(offset, std::iter::once(bytes)) {
            self.write_cached(offset + run.start as u64, &bytes[run])?;
        }
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub(super) fn sync(&self) -> Result<(), TargetError> {
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

/// `bytes` cut or filled up with zeros, which the allocator has: `Vec::resize` would write them one by one in debug builds.
fn resized_bytes(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut resized = vec![0; length];
    let kept = length.min(bytes.len());
    resized[..kept].copy_from_slice(&bytes[..kept]);
    resized
}
