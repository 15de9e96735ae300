//! Opens the target in such a way that it cannot be mistaken for a finished disk.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags};
use stream::error::{Error, FormatError, TargetError, TargetRefusedError};
use stream::facts::MAX_DISK_BYTES;
use stream::local::read_exact_at;
use stream::marks::HELD_BYTES;

use super::direct::DirectFile;
use super::handle::{BusyTimes, Disk};
use super::options::{CacheMode, DiskOptions};
use super::pacer::FlushPacer;
use super::place::{TargetKind, classify_target, inspect_existing, inspect_target};
use super::unfinished::UnfinishedFile;
use crate::lock::{LockState, lock_file, retry_while_held};
use crate::unnamed_file::create_unnamed;

/// The first bytes of a qcow2 image (QEMU's docs/interop/qcow2.rst).
const QCOW2_MAGIC: [u8; 4] = *b"QFI\xFB";

impl Disk {
    /// Opens the target for a disk of `virtual_size` bytes; `None` if the size is known only at
    /// the end of the stream. If the disk does not fit, fails before the target is touched.
    pub fn open(options: &DiskOptions, virtual_size: Option<u64>) -> Result<Self, Error> {
        let mut disk = match inspect_target(&options.path)? {
            TargetKind::Device => Self::open_device(options)?,
            TargetKind::File | TargetKind::Nothing => Self::create_file(options, virtual_size)?,
        };
        disk.open_direct(options.cache);
        disk.check_fits(virtual_size.unwrap_or(0))?;
        if disk.is_device {
            disk.zeroed = disk.zero_head(options.preallocate)?;
            tracing::debug!(target_is_zeroed_by_discard = disk.zeroed, "device target");
        } else {
            disk.size_file(virtual_size, options.preallocate)?;
        }
        tracing::debug!(path = %options.path.display(), "took the target");
        Ok(disk)
    }

    /// Opens an existing disk to change it in place. If `virtual_size` bytes do not fit, fails
    /// before the disk is touched.
    pub(crate) fn open_in_place(options: &DiskOptions, virtual_size: u64) -> Result<Self, Error> {
        let mut disk = match inspect_existing(&options.path)? {
            TargetKind::Device => Self::open_device(options)?,
            TargetKind::File | TargetKind::Nothing => Self::open_file(options)?,
        };
        disk.in_place = true;
        disk.open_direct(options.cache);
        disk.check_fits(virtual_size)?;
        tracing::debug!(path = %options.path.display(), "took the target");
        Ok(disk)
    }

    /// Creates an unnamed file in the directory `dir` for a disk that only this process reads.
    pub(crate) fn open_scratch(dir: &Path, virtual_size: Option<u64>) -> Result<Self, Error> {
        let options = DiskOptions::new(dir, u64::MAX);
        let mut disk = Self::new(&options, false, create_unnamed(dir)?, u64::MAX);
        disk.open_direct(options.cache);
        disk.check_fits(virtual_size.unwrap_or(0))?;
        disk.size_file(virtual_size, false)?;
        Ok(disk)
    }

    /// Grows a file that is smaller than `virtual_size` to that size.
    pub(crate) fn grow_file(&self, virtual_size: u64) -> Result<(), Error> {
        if !self.is_device && self.file_length()? < virtual_size {
            self.set_len(virtual_size)?;
        }
        Ok(())
    }

    /// Returns an error if the disk is smaller than `virtual_size` bytes.
    pub(crate) fn check_holds(&self, virtual_size: u64) -> Result<(), Error> {
        let held = if self.is_device { self.capacity } else { self.file_length()? };
        if held < virtual_size {
            let reason = format!(
                "the source's disk has {virtual_size} bytes, the imported disk has {held}: the source has grown; import it again from the start"
            );
            return Err(FormatError::Misfit(reason).into());
        }
        Ok(())
    }

    /// Returns an error if a file cannot be the base of a delta to a raw disk of `virtual_size`
    /// bytes: the base may be smaller, but not larger. A device may be larger than its disk.
    pub(crate) fn check_is_base(&self, virtual_size: u64) -> Result<(), Error> {
        if self.is_device {
            return Ok(());
        }
        let held = self.file_length()?;
        let mut magic = [0; QCOW2_MAGIC.len()];
        // A guest may store a qcow2 image on its disk, but the disk then has the size of the delta.
        if held != virtual_size
            && read_exact_at(&self.file, &mut magic, 0).is_ok()
            && magic == QCOW2_MAGIC
        {
            let reason = "the target is a qcow2 file, expected a raw disk: convert it with `cdi-importer convert`, or write the disk of all \
                          backups with `cdi-importer restore`";
            return Err(FormatError::Misfit(reason.to_owned()).into());
        }
        if held > virtual_size {
            let reason = format!(
                "the delta is for a disk of {virtual_size} bytes, but the target has {held}: choose the disk that it belongs to"
            );
            return Err(FormatError::Misfit(reason).into());
        }
        Ok(())
    }

    fn file_length(&self) -> Result<u64, TargetError> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(|source| self.target_error("measure", source))?.len())
    }

    fn open_device(options: &DiskOptions) -> Result<Self, Error> {
        // With O_EXCL the kernel returns EBUSY while the device is mounted, or while another
        // process has opened it in the same way, through any device node and in any container. An
        // additional lock would add nothing, and udev briefly locks device nodes.
        let file = open_existing(&options.path, TargetKind::Device, OFlags::EXCL)?;
        Self::of_device(options, file)
    }

    /// Takes over a device that is already open as `file`.
    pub(super) fn of_device(options: &DiskOptions, mut file: File) -> Result<Self, Error> {
        // The size is measured by seeking, because `stat` reports 0 for a block device.
        let size = file
            .seek(SeekFrom::End(0))
            .map_err(|source| TargetError::new("measure", &options.path, source))?;
        Ok(Self::new(options, true, file, size.min(options.available)))
    }

    fn open_file(options: &DiskOptions) -> Result<Self, Error> {
        let file = open_existing(&options.path, TargetKind::File, OFlags::empty())?;
        if lock_file(&file) == LockState::Taken {
            return Err(TargetError::from_refusal(
                "open",
                &options.path,
                TargetRefusedError::InUse,
            )
            .into());
        }
        Ok(Self::new(options, false, file, options.available))
    }

    fn create_file(options: &DiskOptions, virtual_size: Option<u64>) -> Result<Self, Error> {
        if let Some(virtual_size) = virtual_size.filter(|_| !options.counts_stored) {
            check_fits(virtual_size, options.available)?;
        }
        let (file, unfinished) = UnfinishedFile::create(&options.path, options.overwrite)?;
        let mut disk = Self::new(options, false, file, options.available);
        disk.unfinished = Some(unfinished);
        Ok(disk)
    }

    /// Takes over the file that a dead attempt left. The caller holds its lock.
    pub(super) fn of_left_file(options: &DiskOptions, file: File) -> Result<Self, Error> {
        let unfinished = UnfinishedFile::adopt_file(&options.path, &file)?;
        let mut disk = Self::new(options, false, file, options.available);
        disk.unfinished = Some(unfinished);
        Ok(disk)
    }

    fn new(options: &DiskOptions, is_device: bool, file: File, capacity: u64) -> Self {
        Self {
            path: options.path.clone(),
            file,
            direct: None,
            pacer: FlushPacer::default(),
            is_device,
            capacity,
            counts_stored: options.counts_stored && !is_device,
            preallocate: options.preallocate,
            zeroed: false,
            held: Mutex::new(Vec::new()),
            written: AtomicU64::new(0),
            zeroed_bytes: AtomicU64::new(0),
            busy: BusyTimes::default(),
            unfinished: None,
            in_place: false,
            kept_end: 0,
        }
    }

    /// Opens a second descriptor that bypasses the page cache, if the filesystem or device
    /// supports that. It is opened through the first descriptor, because the path may lead
    /// elsewhere by now.
    pub(super) fn open_direct(&mut self, cache: CacheMode) {
        if cache == CacheMode::Page {
            return;
        }
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let same = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match OpenOptions::new().write(true).custom_flags(flags).open(same) {
            Ok(file) => self.direct = Some(DirectFile::new(file, cache)),
            Err(error) => {
                tracing::debug!(%error, "direct I/O is not available, using the page cache")
            }
        }
    }

    /// Returns an error if a disk of `virtual_size` bytes is larger than the target may be, or if
    /// too much is stored already.
    pub(crate) fn check_fits(&self, virtual_size: u64) -> Result<(), Error> {
        if self.counts_stored {
            check_fits(virtual_size, u64::MAX)?;
            return check_fits(self.written_bytes(), self.capacity);
        }
        check_fits(virtual_size, self.capacity)
    }

    /// Zeroes the first MiB of a device and syncs it, so that no part of a disk is visible.
    /// Returns true if the device could deallocate the range instead of writing zeros. The rest of
    /// the device is then zeroed in the same way.
    pub(super) fn zero_head(&self, preallocate: bool) -> Result<bool, TargetError> {
        let first = 0..HELD_BYTES.min(self.capacity);
        let is_deallocated = !preallocate && self.punch_hole(&first).is_ok();
        if !is_deallocated {
            self.zero_range(first)?;
        }
        self.sync()?;
        Ok(is_deallocated)
    }

    /// Sets the size of a fresh file, which reads as zeros. With `preallocate`, also allocates its
    /// blocks.
    fn size_file(&mut self, virtual_size: Option<u64>, preallocate: bool) -> Result<(), Error> {
        if let Some(size) = virtual_size {
            self.set_len(size)?;
        }
        self.zeroed = match virtual_size {
            _ if !preallocate => true,
            Some(size) => self.allocate_range(0..size)?,
            // The size is unknown, so every byte is written as it arrives, zeros included.
            None => false,
        };
        Ok(())
    }

    /// Allocates blocks that read as zeros. Returns false if the filesystem does not support that.
    pub(super) fn allocate_range(&self, range: std::ops::Range<u64>) -> Result<bool, TargetError> {
        match self.fallocate(FallocateFlags::empty(), &range) {
            Ok(()) => Ok(true),
            // Other errors, such as ENOSPC, are returned: writing zeros would fail as well.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
            Err(errno) => Err(TargetError::new("allocate", &self.path, errno.into())),
        }
    }
}

fn check_fits(virtual_size: u64, available: u64) -> Result<(), Error> {
    // Without this check the system would reject the size, with a message that does not explain
    // it.
    if virtual_size > MAX_DISK_BYTES && available > MAX_DISK_BYTES {
        return Err(FormatError::Impossible { virtual_size }.into());
    }
    if virtual_size > available {
        return Err(FormatError::TooLarge { virtual_size, available }.into());
    }
    Ok(())
}

/// Opens `path` for reading and writing. Returns an error if the file there is no longer of the
/// kind that was `found` earlier.
pub(super) fn open_existing(
    path: &Path,
    found: TargetKind,
    flags: OFlags,
) -> Result<File, TargetError> {
    let failed = |source| TargetError::new("open", path, source);
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
            .open(path)
    };
    let is_held = |opened: &io::Result<File>| matches!(opened, Err(error) if error.kind() == ErrorKind::ResourceBusy);
    let file = retry_while_held(open, is_held).map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if classify_target(path, kind)? == found {
        Ok(file)
    } else {
        Err(TargetError::from_refusal("open", path, TargetRefusedError::Replaced))
    }
}
