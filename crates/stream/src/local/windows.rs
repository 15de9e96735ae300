//! Reads files at an offset, on Windows. `unix.rs` describes the functions.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::windows::fs::FileExt;

/// Changes nothing: files here are not pipes.
pub(super) fn without_wait(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Returns false: devices such as `\\\\.\\PhysicalDrive0` do not look like files here.
pub fn is_block_device(_: FileType) -> bool {
    false
}

/// Reads some bytes of `file` at `offset`, and returns how many. This moves the position of the
/// open file, which nothing here uses.
pub fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(bytes, offset)
}

/// Like [`read_at`], into the first of the buffers, all of which have space.
pub(super) fn read_vectored_at(
    file: &File,
    rooms: &mut [IoSliceMut<'_>],
    offset: u64,
) -> io::Result<usize> {
    rooms.first_mut().map_or(Ok(0), |room| read_at(file, room, offset))
}

/// Does nothing: Windows takes this advice only when a file is opened.
pub(super) fn advise_sequential(_: &File) {}

/// Fails: no file here is a device.
pub(super) fn open_direct(_: &File) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the whole range: holes (FSCTL_QUERY_ALLOCATED_RANGES) cannot be found without `unsafe`.
/// Their zeros are read, and not sent either.
#[expect(clippy::unnecessary_wraps, reason = "the same signature as on Unix")]
pub fn next_data(_: &File, offset: u64, end: u64) -> io::Result<Range<u64>> {
    Ok(offset..end)
}
