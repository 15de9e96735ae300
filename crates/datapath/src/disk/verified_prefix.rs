//! The beginning of a disk that a dead attempt left and that need not be sent again.
//!
//! A killed process leaves a file under its final name, or a device, without its first
//! [`HELD_BYTES`]. The client that has the image sends checksums of the bytes after them. The disk
//! is read and compared with these checksums before any of it is reused. Therefore no process has
//! to store any state, and data that was lost with the page cache is never mistaken for written
//! data.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;
use stream::error::{Error, TargetError};
use stream::marks::{HELD_BYTES, marks_of};
use stream::prefix_crc::PrefixCrc;
use tokio_util::sync::CancellationToken;

use super::handle::Disk;
use super::open::open_existing;
use super::options::DiskOptions;
use super::place::{TargetKind, inspect_target};
use crate::lock::{LockState, lock_file};

/// A disk that a dead attempt left, opened exclusively for this process, and the end of its
/// verified part.
#[derive(Debug)]
pub struct VerifiedPrefix {
    pub(super) file: File,
    pub(super) is_device: bool,
    /// Offset of the end of the verified part.
    pub(super) end: u64,
    /// Bytes that the file occupies on its filesystem.
    allocated: u64,
}

impl VerifiedPrefix {
    /// Reads the disk at `path` up to the last of `marks`, which are in ascending order, and
    /// returns the longest prefix whose checksum matches. Returns `None` if no checksum matches,
    /// or if the file is not a disk that a dead attempt of this user left.
    pub fn find_prefix(
        path: &Path,
        marks: &[PrefixCrc],
        stop: &CancellationToken,
    ) -> Result<Option<Self>, Error> {
        let (is_device, file) = match inspect_target(path)? {
            TargetKind::Nothing => return Ok(None),
            TargetKind::Device => (true, open_existing(path, TargetKind::Device, OFlags::EXCL)?),
            TargetKind::File => (false, open_existing(path, TargetKind::File, OFlags::NOFOLLOW)?),
        };
        if !is_device && (!is_abandoned(&file) || lock_file(&file) == LockState::Taken) {
            return Ok(None);
        }
        let ends: Vec<u64> = marks.iter().map(|mark| mark.end_offset()).collect();
        let found = marks_of(&file, &ends, stop);
        let found = found.map_err(|source| TargetError::new("read", path, source))?;
        if stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        let is_true = |mark: &&PrefixCrc| found.contains(mark);
        let Some(mark) = marks.iter().rfind(is_true) else {
            return Ok(None);
        };
        // `blocks()` counts units of 512 bytes, whatever the block size of the filesystem
        // (stat(2)).
        let allocated = file.metadata().map_or(0, |metadata| metadata.blocks() * 512);
        Ok(Some(Self { file, is_device, end: mark.end_offset(), allocated }))
    }

    /// Offset of the first byte after the kept part.
    pub fn end_offset(&self) -> u64 {
        self.end
    }

    /// Bytes that need not be sent: those between the first [`HELD_BYTES`] and the end of the kept
    /// part.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.end - HELD_BYTES
    }

    /// Bytes that the file occupies on its filesystem.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated
    }
}

/// True for a file as a failed attempt leaves it: owned by this user, accessible only to its
/// owner, and with a single name.
fn is_abandoned(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| {
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        is_ours && metadata.mode() & 0o777 == 0o600 && metadata.nlink() == 1
    })
}

impl Disk {
    /// Takes over the `kept` disk to continue after its verified part. The rest of the disk is
    /// treated like a new one.
    pub(crate) fn open_behind(options: &DiskOptions, kept: &VerifiedPrefix) -> Result<Self, Error> {
        let file = kept
            .file
            .try_clone()
            .map_err(|source| TargetError::new("open", &options.path, source))?;
        let mut disk = if kept.is_device {
            Self::of_device(options, file)?
        } else {
            Self::of_left_file(options, file)?
        };
        disk.open_direct(options.cache);
        disk.check_fits(kept.end)?;
        let is_deallocated = disk.zero_head(options.preallocate)?;
        if kept.is_device {
            disk.zeroed = is_deallocated;
        } else {
            // Truncate the file, so that everything behind the verified part reads as zeros.
            disk.set_len(kept.end)?;
            disk.zeroed = !options.preallocate;
        }
        disk.kept_end = kept.end;
        tracing::info!("{} bytes of an earlier attempt are kept", kept.kept_bytes());
        Ok(disk)
    }
}
