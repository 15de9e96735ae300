//! Which way bytes take to the disk: past the page cache in large pieces, through it in small ones, and never so many
//! through it that they pile up.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::bounce::Bounce;
use super::disk::Disk;
use super::slices::{part, total};
use super::{Cache, HELD_BYTES};
use crate::buffer::PAGE;
use crate::error::TargetError;

/// Most slices that one vectored write takes (`IOV_MAX` of Linux).
const MAX_SLICES: usize = 1024;

/// What is smaller goes through the page cache, which gathers it into larger writes; a direct write waits for the disk
/// every time.
const LEAST_DIRECT_BYTES: usize = 64 << 10;

/// Bytes in the page cache that are flushed while more are written: they must neither fill the memory of a pod, which
/// counts its page cache, nor all wait for the final fsync. At most twice as many are dirty.
const DIRTY_BYTES: usize = 32 << 20;

/// A second descriptor that bypasses the page cache.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    /// Bytes that are worth it.
    least: usize,
    /// Some filesystems accept `O_DIRECT` and refuse the write, or want larger blocks.
    refused: AtomicBool,
}

impl Direct {
    pub(super) fn new(file: File, cache: Cache) -> Self {
        let least = if cache == Cache::Direct {
            PAGE
        } else {
            LEAST_DIRECT_BYTES
        };
        Self {
            file,
            least,
            refused: AtomicBool::new(false),
        }
    }

    fn is_for(&self, bytes: usize) -> bool {
        bytes >= self.least && !self.refused.load(Ordering::Relaxed)
    }
}

/// Has what is written through the page cache flushed from time to time.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    dirty: AtomicUsize,
    flushing: Mutex<()>,
}

impl Pacer {
    /// `bytes` were written. One thread flushes while the others write on, until they have as much to flush.
    pub(crate) fn wrote(&self, bytes: usize, file: &File) -> io::Result<()> {
        if self.dirty.fetch_add(bytes, Ordering::Relaxed) + bytes < DIRTY_BYTES {
            return Ok(());
        }
        let _one = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.dirty.load(Ordering::Relaxed) < DIRTY_BYTES {
            return Ok(());
        }
        self.dirty.store(0, Ordering::Relaxed);
        file.sync_data()
    }
}

impl Disk {
    /// Writes slices that follow each other on the disk; what belongs to the first MiB is held back.
    pub(super) fn write_slices(
        &self,
        offset: u64,
        slices: &[&[u8]],
        bounce: &mut Bounce,
    ) -> Result<(), TargetError> {
        if offset >= HELD_BYTES || self.in_place {
            return self.write_behind_held(offset, slices, bounce);
        }
        let mut at = offset;
        let mut rest = Vec::new();
        for slice in slices {
            rest.extend(self.hold(at, slice));
            at += slice.len() as u64;
        }
        self.write_behind_held(HELD_BYTES, &rest, bounce)
    }

    fn write_behind_held(
        &self,
        offset: u64,
        slices: &[&[u8]],
        bounce: &mut Bounce,
    ) -> Result<(), TargetError> {
        let length = total(slices);
        match &self.direct {
            Some(direct) if direct.is_for(length) => self.write_direct(direct, offset, slices, bounce),
            _ => self.write_through_cache(offset, slices),
        }
    }

    /// Whole pages go past the page cache, parts of pages through it: no page is touched both ways.
    fn write_direct(
        &self,
        direct: &Direct,
        offset: u64,
        slices: &[&[u8]],
        bounce: &mut Bounce,
    ) -> Result<(), TargetError> {
        let length = total(slices);
        let to_page = offset.next_multiple_of(PAGE as u64) - offset;
        let head = usize::try_from(to_page).unwrap_or(PAGE).min(length);
        let pages = (length - head) - (length - head) % PAGE;
        let middle = offset + head as u64;
        self.write_through_cache(offset, &part(slices, 0..head))?;
        self.write_pages(direct, middle, &part(slices, head..head + pages), bounce)?;
        self.write_through_cache(middle + pages as u64, &part(slices, head + pages..length))
    }

    fn write_pages(
        &self,
        direct: &Direct,
        offset: u64,
        pages: &[&[u8]],
        bounce: &mut Bounce,
    ) -> Result<(), TargetError> {
        let aligned =
            |slice: &&[u8]| slice.len().is_multiple_of(PAGE) && slice.as_ptr().addr().is_multiple_of(PAGE);
        let written = if pages.iter().all(aligned) {
            write_all(&direct.file, offset, pages)
        } else {
            write_all(&direct.file, offset, &[bounce.join(pages)])
        };
        match written {
            Ok(()) => {
                self.count(total(pages));
                Ok(())
            }
            Err(Errno::INVAL) => {
                tracing::debug!("direct writes are refused, using the page cache");
                direct.refused.store(true, Ordering::Relaxed);
                self.write_through_cache(offset, pages)
            }
            Err(errno) => Err(self.error("write", errno.into())),
        }
    }

    fn write_through_cache(&self, offset: u64, slices: &[&[u8]]) -> Result<(), TargetError> {
        let length = total(slices);
        write_all(&self.file, offset, slices).map_err(|errno| self.error("write", errno.into()))?;
        self.count(length);
        self.pacer
            .wrote(length, &self.file)
            .map_err(|error| self.error("fsync", error))
    }

    /// Writes through the page cache, whatever the offset.
    pub(crate) fn write_cached(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.write_through_cache(offset, &[bytes])
    }
}

fn write_all(file: &File, offset: u64, slices: &[&[u8]]) -> Result<(), Errno> {
    let mut at = offset;
    for group in slices.chunks(MAX_SLICES) {
        let end = at + total(group) as u64;
        let mut vectors: Vec<IoSlice<'_>> = group.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut vectors = &mut vectors[..];
        while at < end {
            match rustix::io::pwritev(file, vectors, at) {
                Ok(0) => return Err(Errno::IO),
                Ok(wrote) => {
                    at += wrote as u64;
                    IoSlice::advance_slices(&mut vectors, wrote);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_bytes_are_flushed_once_there_are_enough() {
        let file = tempfile::tempfile().unwrap();
        let pacer = Pacer::default();
        pacer.wrote(DIRTY_BYTES - 1, &file).unwrap();
        assert_eq!(pacer.dirty.load(Ordering::Relaxed), DIRTY_BYTES - 1);
        pacer.wrote(1, &file).unwrap();
        assert_eq!(pacer.dirty.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_failed_flush_is_an_error() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        // fdatasync of a pipe is EINVAL.
        assert!(Pacer::default().wrote(DIRTY_BYTES, &file).is_err());
    }
}
