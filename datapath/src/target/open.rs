//! Opening the target so that it cannot be mistaken for a finished disk.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use rustix::fs::{FallocateFlags, OFlags};

use super::disk::{Disk, Kind};
use super::write::{Direct, Pacer};
use super::{Cache, HELD_BYTES, Options, is_block_device};
use crate::error::{Error, FormatError, TargetError};

impl Disk {
    /// Opens the target for a disk of `virtual_size` bytes, or of a size that only the end of the stream tells.
    /// Fails before anything is touched if the disk does not fit.
    pub fn open(options: &Options, virtual_size: Option<u64>) -> Result<Self, Error> {
        let kind = if is_block_device(&options.path) {
            Kind::Device
        } else {
            Kind::File
        };
        let mut disk = match kind {
            Kind::Device => Self::open_device(options)?,
            Kind::File => Self::open_file(options, virtual_size)?,
        };
        if options.cache != Cache::Page {
            disk.direct = open_direct(&options.path).map(|file| Direct::new(file, options.cache));
        }
        disk.check_fits(virtual_size.unwrap_or(0))?;
        match kind {
            Kind::Device => disk.hide_device(options.preallocate)?,
            Kind::File => disk.size_file(virtual_size, options.preallocate)?,
        }
        Ok(disk)
    }

    /// Opens a disk that exists, to be changed where it is. A file that is smaller than `virtual_size` grows.
    pub fn open_in_place(options: &Options, virtual_size: u64) -> Result<Self, Error> {
        let path = &options.path;
        let mut disk = if is_block_device(path) {
            Self::open_device(options)?
        } else {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .map_err(|source| TargetError::new("open", path, source))?;
            Self::new(options, Kind::File, file, options.available)
        };
        disk.in_place = true;
        if options.cache != Cache::Page {
            disk.direct = open_direct(path).map(|file| Direct::new(file, options.cache));
        }
        disk.check_fits(virtual_size)?;
        let length = disk
            .file
            .metadata()
            .map_err(|source| disk.error("measure", source))?
            .len();
        if disk.kind == Kind::File && length < virtual_size {
            disk.set_len(virtual_size)?;
        }
        Ok(disk)
    }

    fn open_device(options: &Options) -> Result<Self, Error> {
        let path = &options.path;
        // O_EXCL on a device: EBUSY while it is mounted or otherwise claimed.
        let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or(0);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(exclusive)
            .open(path)
            .map_err(|source| TargetError::new("open", path, source))?;
        let size = file
            .seek(SeekFrom::End(0))
            .map_err(|source| TargetError::new("measure", path, source))?;
        Ok(Self::new(
            options,
            Kind::Device,
            file,
            size.min(options.available),
        ))
    }

    fn open_file(options: &Options, virtual_size: Option<u64>) -> Result<Self, Error> {
        let path = &options.path;
        if let Some(virtual_size) = virtual_size {
            check_fits(virtual_size, options.available)?;
        }
        if options.overwrite {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(TargetError::new("remove", path, error).into());
                }
                _ => {}
            }
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| TargetError::new("create", path, source))?;
        Ok(Self::new(options, Kind::File, file, options.available))
    }

    fn new(options: &Options, kind: Kind, file: File, capacity: u64) -> Self {
        Self {
            path: options.path.clone(),
            file,
            direct: None,
            pacer: Pacer::default(),
            kind,
            capacity,
            preallocate: options.preallocate,
            zeroed: false,
            held: Mutex::new(Vec::new()),
            written: AtomicU64::new(0),
            committed: false,
            in_place: false,
        }
    }

    /// Fails if a disk of `virtual_size` bytes is larger than what the target may hold.
    pub fn check_fits(&self, virtual_size: u64) -> Result<(), Error> {
        check_fits(virtual_size, self.capacity)
    }

    /// Makes the first MiB zero, on the disk, before anything else is written. Whether the device could do that
    /// without being sent zeros tells how the rest will be zeroed.
    fn hide_device(&mut self, preallocate: bool) -> Result<(), Error> {
        let first = 0..HELD_BYTES.min(self.capacity);
        self.zeroed = !preallocate && self.punch(&first).is_ok();
        if !self.zeroed {
            self.zero_range(first)?;
        }
        tracing::debug!(target_is_zeroed_by_discard = self.zeroed, "device target");
        Ok(self.sync()?)
    }

    /// A fresh file reads as zeros; preallocated, its blocks exist as well.
    fn size_file(&mut self, virtual_size: Option<u64>, preallocate: bool) -> Result<(), Error> {
        if let Some(size) = virtual_size {
            self.set_len(size)?;
        }
        self.zeroed = match virtual_size {
            _ if !preallocate => true,
            Some(size) => self.allocate(0..size)?,
            // Written as it comes, zeros included.
            None => false,
        };
        Ok(())
    }

    /// Allocates blocks that read as zeros; `false` if the filesystem cannot.
    pub(super) fn allocate(&self, range: std::ops::Range<u64>) -> Result<bool, TargetError> {
        if range.is_empty() {
            return Ok(true);
        }
        match rustix::fs::fallocate(
            &self.file,
            FallocateFlags::empty(),
            range.start,
            range.end - range.start,
        ) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
            Err(errno) => Err(TargetError::new("allocate", &self.path, errno.into())),
        }
    }
}

fn check_fits(virtual_size: u64, available: u64) -> Result<(), Error> {
    if virtual_size > available {
        return Err(FormatError::TooLarge {
            virtual_size,
            available,
        }
        .into());
    }
    Ok(())
}

/// A second descriptor that bypasses the page cache, if the filesystem or device has such a thing.
fn open_direct(path: &Path) -> Option<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    match OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::debug!(%error, "direct I/O is not available, using the page cache");
            None
        }
    }
}
