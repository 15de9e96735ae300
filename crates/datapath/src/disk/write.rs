//! Writes bytes to the disk: large pieces bypass the page cache, small ones go through it.
//!
//! Bypassing the page cache halves the CPU time for large pieces, leaves the pod's memory alone,
//! and leaves nothing for the last fsync to wait for. Small pieces and parts of pages go through
//! the page cache, so that no page is written in both ways. They are flushed as they accumulate.
//! `sync_file_range` is not used: it would need `unsafe` and guarantees less.

use std::fs::File;
use std::io::IoSlice;

use rustix::io::Errno;
use stream::buffer::{ChunkBuffer, PAGE};
use stream::error::TargetError;
use stream::marks::HELD_BYTES;

use super::direct::DirectFile;
use super::handle::Disk;
use super::slices::{copy_to_chunks, sub_slices, total_bytes};

/// Maximum number of slices in one vectored write (`IOV_MAX` on Linux).
const MAX_SLICES: usize = 1024;

impl Disk {
    /// Writes slices that follow each other on the disk. Bytes of the first MiB are held back.
    pub(super) fn write_slices(&self, offset: u64, slices: &[&[u8]]) -> Result<(), TargetError> {
        if offset >= HELD_BYTES || self.in_place {
            return self.time_write(|| self.write_behind_held(offset, slices));
        }
        let mut at = offset;
        let mut rest = Vec::new();
        for slice in slices {
            rest.extend(self.hold_back(at, slice));
            at += slice.len() as u64;
        }
        self.time_write(|| self.write_behind_held(HELD_BYTES, &rest))
    }

    fn write_behind_held(&self, offset: u64, slices: &[&[u8]]) -> Result<(), TargetError> {
        let length = total_bytes(slices);
        match &self.direct {
            Some(direct) if direct.is_for(length) => self.write_direct(direct, offset, slices),
            _ => self.write_through_cache(offset, slices),
        }
    }

    /// Writes whole pages directly and parts of pages through the page cache, so that no page is
    /// written in both ways.
    fn write_direct(
        &self,
        direct: &DirectFile,
        offset: u64,
        slices: &[&[u8]],
    ) -> Result<(), TargetError> {
        let length = total_bytes(slices);
        let to_page = offset.next_multiple_of(PAGE as u64) - offset;
        let head = usize::try_from(to_page).unwrap_or(PAGE).min(length);
        let pages = (length - head) - (length - head) % PAGE;
        let middle = offset + head as u64;
        self.write_through_cache(offset, &sub_slices(slices, 0..head))?;
        self.write_pages(direct, middle, &sub_slices(slices, head..head + pages))?;
        self.write_through_cache(middle + pages as u64, &sub_slices(slices, head + pages..length))
    }

    fn write_pages(
        &self,
        direct: &DirectFile,
        offset: u64,
        pages: &[&[u8]],
    ) -> Result<(), TargetError> {
        let aligned = |slice: &&[u8]| {
            slice.len().is_multiple_of(PAGE) && slice.as_ptr().addr().is_multiple_of(PAGE)
        };
        // Chunks have the same alignment in memory as in the object, so bytes of a raw image need
        // no copy before a direct write.
        let written = if pages.iter().all(aligned) {
            write_all(&direct.file, offset, pages)
        } else {
            let chunks = copy_to_chunks(pages);
            let pages: Vec<&[u8]> = chunks.iter().map(ChunkBuffer::as_bytes).collect();
            write_all(&direct.file, offset, &pages)
        };
        match written {
            Ok(()) => {
                self.count_written(total_bytes(pages));
                Ok(())
            }
            // Linux reports an unsuitable length or alignment of a direct write as EINVAL
            // (open(2), "O_DIRECT"). Other errors concern the disk itself.
            Err(Errno::INVAL) => {
                tracing::debug!("direct writes are not supported, using the page cache");
                direct.give_up();
                self.write_through_cache(offset, pages)
            }
            Err(errno) => Err(self.target_error("write", errno.into())),
        }
    }

    fn write_through_cache(&self, offset: u64, slices: &[&[u8]]) -> Result<(), TargetError> {
        let length = total_bytes(slices);
        write_all(&self.file, offset, slices)
            .map_err(|errno| self.target_error("write", errno.into()))?;
        self.count_written(length);
        self.pacer
            .record_write(length, &self.file)
            .map_err(|error| self.target_error("fsync", error))
    }

    /// Writes through the page cache, whatever the offset.
    pub(crate) fn write_cached(&self, offset: u64, bytes: &[u8]) -> Result<(), TargetError> {
        self.write_through_cache(offset, &[bytes])
    }
}

fn write_all(file: &File, offset: u64, slices: &[&[u8]]) -> Result<(), Errno> {
    let mut at = offset;
    for group in slices.chunks(MAX_SLICES) {
        let end = at + total_bytes(group) as u64;
        let mut vectors: Vec<IoSlice<'_>> = group.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut vectors = &mut vectors[..];
        while at < end {
            match rustix::io::pwritev(file, vectors, at) {
                // Without this error, a write of 0 bytes would be repeated forever.
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
