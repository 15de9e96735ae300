//! Reads files at an offset, on Unix. `windows.rs` has the same functions for Windows.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::LocalFile;

impl AsFd for LocalFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Prepares `options` so that opening a named pipe does not wait for its other end.
pub(super) fn without_wait(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0))
}

/// True for a block device, which is read like a file.
pub fn is_block_device(kind: FileType) -> bool {
    kind.is_block_device()
}

/// Reads some bytes of `file` at `offset`, and returns how many. The position of the open file
/// does not matter.
pub fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::pread(file, &mut *bytes, offset))?)
}

/// Like [`read_at`], into several buffers.
pub(super) fn read_vectored_at(
    file: &File,
    rooms: &mut [IoSliceMut<'_>],
    offset: u64,
) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::preadv(file, &mut *rooms, offset))?)
}

/// Lets the kernel read ahead. This is only an optimisation, so errors are ignored.
pub(super) fn advise_sequential(file: &File) {
    #[cfg(target_os = "linux")]
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential).ok();
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Opens the device behind `file` for reading past the page cache. It is opened through the
/// descriptor, because the path may lead elsewhere by now.
#[cfg(target_os = "linux")]
pub(super) fn open_direct(file: &File) -> io::Result<File> {
    use std::os::fd::AsRawFd;

    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).custom_flags(flags).open(same)
}

/// Fails: only Linux can open a device again without its path.
#[cfg(not(target_os = "linux"))]
pub(super) fn open_direct(_: &File) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the next range of data at or after `offset` and before `end`. If only a hole follows,
/// the range is empty and lies at `end`. Asks the filesystem (`SEEK_DATA`, `SEEK_HOLE`; lseek(2)).
pub fn next_data(file: impl AsFd, offset: u64, end: u64) -> Result<Range<u64>, Errno> {
    let start = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        // Only a hole follows.
        Err(Errno::NXIO) => return Ok(end..end),
        // A device, or a filesystem that does not report holes: treat everything as data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(offset..end),
        Err(errno) => return Err(errno),
    };
    let hole = match rustix::fs::seek(&file, SeekFrom::Hole(start)) {
        Ok(hole) => hole,
        Err(Errno::NXIO) => end,
        Err(errno) => return Err(errno),
    };
    let start = start.clamp(offset, end);
    // If the file changes at the same time, the hole may be at or before the start: treat
    // everything as data.
    let stop = if hole > start { hole.min(end) } else { end };
    Ok(start..stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_all_data() {
        let file = File::open("/dev/zero").unwrap();
        assert_eq!(next_data(&file, 3, 10), Ok(3..10));
    }
}
