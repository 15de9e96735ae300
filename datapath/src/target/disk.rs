//! The open disk: positional writes from any thread, the held first MiB, the commit.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::HELD_BYTES;
use super::buffer::{AlignedBuffer, PAGE};
use super::zero::{ZERO_BLOCK, data_runs};
use crate::error::{Error, TargetError};

/// Most slices that one vectored write takes (`IOV_MAX` of Linux).
const MAX_SLICES: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Device,
}

/// A target that is being written. Dropped without [`Disk::commit`], a file is removed and a device keeps a zeroed
/// first MiB.
#[derive(Debug)]
pub struct Disk {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) direct: Option<File>,
    pub(super) kind: Kind,
    /// Bytes that the disk may have.
    pub(super) capacity: u64,
    pub(super) preallocate: bool,
    /// True if what nobody writes reads as zeros.
    pub(super) zeroed: bool,
    /// The first [`HELD_BYTES`], as far as they were given.
    pub(super) held: Mutex<Vec<u8>>,
    pub(super) written: AtomicU64,
    pub(super) committed: bool,
}

impl Disk {
    /// Bytes that were written so far, zeros that had to be written included.
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// True if ranges that are not written read as zeros, so that zeros in the data need no writing.
    pub fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    /// Bytes that the disk may have.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// True for a block device.
    pub fn is_device(&self) -> bool {
        self.kind == Kind::Device
    }

    /// Writes `bytes` at `offset`; what belongs to the first MiB is held back.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8], bounce: &mut Bounce) -> Result<(), TargetError> {
        let Some((offset, bytes)) = self.hold(offset, bytes) else {
            return Ok(());
        };
        match &self.direct {
            Some(direct) => self.write_direct(direct, offset, bytes, bounce),
            None => self.write_cached(offset, bytes),
        }
    }

    /// Writes slices that follow each other on the disk, without joining them first.
    pub(super) fn write_slices(
        &self,
        offset: u64,
        slices: &[&[u8]],
        bounce: &mut Bounce,
    ) -> Result<(), TargetError> {
        let mut at = offset;
        if self.direct.is_some() || offset < HELD_BYTES {
            if let Some((at, joined)) = bounce.join(offset, slices) {
                self.write(at, joined, &mut Bounce::default())?;
            }
            return Ok(());
        }
        for group in slices.chunks(MAX_SLICES) {
            let length: usize = group.iter().map(|slice| slice.len()).sum();
            self.write_group(at, group, length)?;
            at += length as u64;
        }
        Ok(())
    }

    fn write_group(&self, offset: u64, group: &[&[u8]], length: usize) -> Result<(), TargetError> {
        let mut vectors: Vec<IoSlice<'_>> = group.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut vectors = &mut vectors[..];
        let mut done = 0;
        while done < length {
            let wrote = rustix::io::pwritev(&self.file, vectors, offset + done as u64);
            match wrote {
                Ok(0) => return Err(self.error("write", io::ErrorKind::WriteZero.into())),
                Ok(wrote) => {
                    done += wrote;
                    IoSlice::advance_slices(&mut vectors, wrote);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(self.error("write", errno.into())),
            }
        }
        self.count(length);
        Ok(())
    }

    /// Whole pages go past the page cache, parts of pages through it: no page is touched both ways.
    fn write_direct(
        &self,
        direct: &File,
        offset: u64,
        bytes: &[u8],
        bounce: &mut Bounce,
    ) -> Result<(), TargetError> {
        let page = PAGE as u64;
        let head = usize::try_from(offset.next_multiple_of(page) - offset)
            .unwrap_or(0)
            .min(bytes.len());
        let (head, rest) = bytes.split_at(head);
        let (pages, tail) = rest.split_at(rest.len() - rest.len() % PAGE);
        self.write_cached(offset, head)?;
        let middle = offset + head.len() as u64;
        if pages.as_ptr().align_offset(PAGE) == 0 {
            self.write_pages(direct, middle, pages)?;
        } else {
            if let Some((at, aligned)) = bounce.join(middle, &[pages]) {
                self.write_pages(direct, at, aligned)?;
            }
        }
        self.write_cached(middle + pages.len() as u64, tail)
    }

    /// Some filesystems accept O_DIRECT and refuse the write, or want larger blocks: those get cached writes.
    fn write_pages(&self, direct: &File, offset: u64, pages: &[u8]) -> Result<(), TargetError> {
        match direct.write_all_at(pages, offset) {
            Ok(()) => {
                self.count(pages.len());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.write_cached(offset, pages),
            Err(error) => Err(self.error("write", error)),
        }
    }

    pub(crate) fn write_cached(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|source| self.error("write", source))?;
        self.count(bytes.len());
        Ok(())
    }

    /// Reads what was written earlier (never the held part).
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), TargetError> {
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|source| self.error("read", source))
    }

    /// Keeps the part that lies in the first MiB; returns the rest, if any.
    fn hold<'a>(&self, offset: u64, bytes: &'a [u8]) -> Option<(u64, &'a [u8])> {
        let Some(room) = HELD_BYTES.checked_sub(offset).filter(|room| *room > 0) else {
            return (!bytes.is_empty()).then_some((offset, bytes));
        };
        let (kept, rest) = bytes.split_at(usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len()));
        // Below HELD_BYTES, so it fits.
        let start = usize::try_from(offset).unwrap_or(0);
        let mut held = self.held();
        let end = start + kept.len();
        if held.len() < end {
            held.resize(end, 0);
        }
        held[start..end].copy_from_slice(kept);
        (!rest.is_empty()).then_some((HELD_BYTES, rest))
    }

    fn held(&self) -> MutexGuard<'_, Vec<u8>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_len(&self, size: u64) -> Result<(), TargetError> {
        self.file
            .set_len(size)
            .map_err(|source| self.error("resize", source))
    }

    /// Gives a file its final size: the disk, or `grow_to` if that is more. Returns the size; a device has its own.
    pub fn resize(&self, virtual_size: u64, grow_to: Option<u64>) -> Result<u64, Error> {
        if self.kind == Kind::Device {
            return Ok(virtual_size);
        }
        let size = virtual_size.max(grow_to.unwrap_or(0));
        self.set_len(size)?;
        if self.preallocate && !self.allocate(virtual_size..size)? {
            self.write_zeros(virtual_size..size)?;
        }
        Ok(size)
    }

    /// Makes the disk complete: everything else is on the disk before the first MiB is written, and the first block
    /// comes last of all. To be called when nothing is left that can fail. Returns all bytes written.
    pub fn commit(mut self, virtual_size: u64, mode: Option<u32>) -> Result<u64, Error> {
        let mut held = std::mem::take(&mut *self.held());
        held.resize(usize::try_from(virtual_size.min(HELD_BYTES)).unwrap_or(0), 0);
        let first_block = held.len().min(usize::try_from(ZERO_BLOCK).unwrap_or(0));
        let (first, rest) = held.split_at(first_block);
        self.commit_part(first_block as u64, rest)?;
        self.sync()?;
        self.commit_part(0, first)?;
        if let Some(mode) = mode
            && self.kind == Kind::File
        {
            self.file
                .set_permissions(std::fs::Permissions::from_mode(mode))
                .map_err(|source| self.error("change permissions of", source))?;
        }
        self.sync()?;
        self.committed = true;
        Ok(self.written_bytes())
    }

    fn commit_part(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        if !self.zeroed {
            return self.write_cached(offset, bytes);
        }
        for run in data_runs(offset, std::iter::once(bytes)) {
            let start = usize::try_from(run.start).unwrap_or(0);
            let end = usize::try_from(run.start + run.length).unwrap_or(0);
            self.write_cached(offset + run.start, &bytes[start..end])?;
        }
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub(super) fn sync(&self) -> Result<(), TargetError> {
        self.file.sync_all().map_err(|source| self.error("fsync", source))
    }

    pub(super) fn count(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn error(&self, action: &'static str, source: io::Error) -> TargetError {
        TargetError::new(action, &self.path, source)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.committed && self.kind == Kind::File {
            super::remove_partial(&self.path);
        }
    }
}

/// Memory of one thread to bring bytes into the alignment that direct I/O wants.
#[derive(Default)]
pub(crate) struct Bounce {
    buffer: Option<AlignedBuffer>,
}

/// Bytes that a [`Bounce`] holds.
const BOUNCE_BYTES: usize = (1 << 20) + PAGE;

impl Bounce {
    /// Copies slices that follow each other from `offset` into one piece whose whole pages are aligned in memory.
    /// Slices come from one batch, so the memory stays near [`BOUNCE_BYTES`].
    fn join(&mut self, offset: u64, slices: &[&[u8]]) -> Option<(u64, &[u8])> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let start = usize::try_from(offset % PAGE as u64).unwrap_or(0);
        if self
            .buffer
            .as_ref()
            .is_none_or(|buffer| buffer.bytes().len() < start + length)
        {
            self.buffer = Some(AlignedBuffer::new((start + length).max(BOUNCE_BYTES)));
        }
        let bytes = self.buffer.as_mut()?.bytes_mut();
        let mut at = start;
        for slice in slices {
            bytes[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        Some((offset, &bytes[start..at]))
    }
}
