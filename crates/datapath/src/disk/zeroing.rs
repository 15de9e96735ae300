//! Makes ranges read as zeros, using only methods that guarantee zeros.
//!
//! The kernel turns `fallocate(PUNCH_HOLE)` into guaranteed zeros, or the call fails. A discard is
//! never used, because discarded blocks need not read as zeros.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use stream::buffer::PAGE;
use stream::error::{Error, TargetError};
use stream::marks::HELD_BYTES;
use tokio_util::sync::CancellationToken;

use super::handle::Disk;

/// Bytes zeroed with one call. Limits how long a device can delay a stop request.
const WINDOW_BYTES: u64 = 1 << 30;
/// The same limit for [`Disk::zero_in_steps`], where the zeros may have to be written.
const STEP_BYTES: u64 = 256 << 20;

/// Bytes of zeros per write, where no better method works.
const ZEROS_BYTES: usize = 1 << 20;
/// Ranges are zeroed in multiples of this. Larger than any logical block size in use (512, 4096,
/// and 16384 on some NVMe devices).
const ALIGNMENT: u64 = 64 << 10;

impl Disk {
    /// Deallocates a range so that it reads as zeros. On a device the kernel turns this into
    /// "write zeroes, may unmap, no fallback" (`blkdev_fallocate`). Unlike a discard, that either
    /// guarantees zeros or fails.
    pub(super) fn punch_hole(&self, range: &Range<u64>) -> Result<(), Errno> {
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, range)
    }

    pub(super) fn fallocate(&self, flags: FallocateFlags, range: &Range<u64>) -> Result<(), Errno> {
        if range.is_empty() {
            return Ok(());
        }
        rustix::fs::fallocate(&self.file, flags, range.start, range.end - range.start)
    }

    /// Makes a range read as zeros. Deallocates it, unless preallocation was requested. If that is
    /// not possible, lets the device zero it, and as a last resort writes zeros. Partial blocks at
    /// both ends are always written.
    pub(crate) fn zero_range(&self, range: Range<u64>) -> Result<(), TargetError> {
        self.time_write(|| self.zero_now(range))
    }

    /// Makes a range of any length read as zeros. Checks `stop` between steps.
    pub(crate) fn zero_in_steps(
        &self,
        range: Range<u64>,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end {
            if stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            let end = range.end.min(at.saturating_add(STEP_BYTES));
            self.zero_range(at..end)?;
            at = end;
        }
        Ok(())
    }

    fn zero_now(&self, range: Range<u64>) -> Result<(), TargetError> {
        let aligned = range.start.next_multiple_of(ALIGNMENT).min(range.end);
        // The end of a device is always a block boundary, whatever its block size.
        let whole_end =
            if range.end >= self.capacity { range.end } else { range.end - range.end % ALIGNMENT };
        let whole = aligned..whole_end.max(aligned);
        self.write_zeros(range.start..whole.start)?;
        let punched = !self.preallocate && self.punch_hole(&whole).is_ok();
        if !punched
            && self
                .fallocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, &whole)
                .is_err()
        {
            self.write_zeros(whole.clone())?;
        } else {
            self.zeroed_bytes.fetch_add(whole.end - whole.start, Ordering::Relaxed);
        }
        self.write_zeros(whole.end..range.end)
    }

    /// Writes zeros through the page cache.
    pub(super) fn write_zeros(&self, range: Range<u64>) -> Result<(), TargetError> {
        let zeros = vec![
            0u8;
            ZEROS_BYTES
                .min(usize::try_from(range.end - range.start).unwrap_or(ZEROS_BYTES))
        ];
        let mut at = range.start;
        while at < range.end {
            let length = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(zeros.len());
            self.write_cached(at, &zeros[..length])?;
            at += length as u64;
        }
        Ok(())
    }
}

/// The offset up to which a device has been zeroed ahead of the data.
///
/// A device that can deallocate is zeroed window by window, just before data is written into a
/// window. The first byte then need not wait for terabytes to be zeroed, and zeros in the data
/// need not be written.
#[derive(Debug)]
pub(super) struct ZeroingFrontier {
    zeroed_to: u64,
    limit: u64,
    stop: CancellationToken,
}

impl ZeroingFrontier {
    /// Creates the frontier for a disk of `virtual_size` bytes. If the size is known, the device
    /// beyond the disk is left unchanged.
    pub(super) fn new(disk: &Disk, virtual_size: Option<u64>, stop: CancellationToken) -> Self {
        let needed = disk.is_device && disk.zeroed;
        let limit = virtual_size
            .map_or(disk.capacity, |size| size.next_multiple_of(ALIGNMENT).min(disk.capacity));
        // Nothing is zeroed ahead on a file, which reads as zeros, or on a device that cannot
        // deallocate, whose gaps are filled at the end.
        Self {
            zeroed_to: if needed { HELD_BYTES.max(disk.kept_end) } else { u64::MAX },
            limit,
            stop,
        }
    }

    /// True if everything before `end` reads as zeros or was written by this transfer.
    pub(super) fn is_past(&self, end: u64) -> bool {
        self.zeroed_to >= end.min(self.limit)
    }

    /// Zeroes whole windows until everything before `end` reads as zeros or was written by this
    /// transfer.
    pub(super) fn advance_to(&mut self, disk: &Disk, end: u64) -> Result<(), Error> {
        while !self.is_past(end) {
            if self.stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            let window_end = (self.zeroed_to + WINDOW_BYTES).min(self.limit);
            // Windows begin and end at multiples of any block size, or at the end of the device.
            debug_assert!(self.zeroed_to.is_multiple_of(PAGE as u64));
            let window = self.zeroed_to..window_end;
            if disk.time_write(|| disk.punch_hole(&window)).is_err() {
                disk.zero_range(window)?;
            }
            self.zeroed_to = window_end;
        }
        Ok(())
    }
}
