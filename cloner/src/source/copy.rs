//! Copies bytes of an open file to the outlet, and checks every read.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;

use codec::encode::outlet::PieceOutlet;
use rustix::io::{pread, retry_on_intr};
use stream::local::next_data;

use super::VolumeReadError;

/// An open file whose size was already announced to the receiver.
#[derive(Clone, Copy)]
pub(super) struct AnnouncedFile<'f> {
    pub(super) file: BorrowedFd<'f>,
    /// The path of the file, for error messages.
    pub(super) path: &'f Path,
    pub(super) size: u64,
}

impl AnnouncedFile<'_> {
    /// Copies the whole file. Holes are sent as zeros without being read.
    pub(super) fn copy_contents(
        &self,
        outlet: &mut PieceOutlet<'_>,
    ) -> Result<(), VolumeReadError> {
        let mut offset = 0;
        while offset < self.size {
            let data = next_data(self.file, offset, self.size).map_err(|errno| {
                VolumeReadError::from_errno("find the data of", self.path, errno)
            })?;
            outlet.append_zeros(data.start - offset)?;
            offset = data.end;
            self.copy_range(data, outlet)?;
        }
        Ok(())
    }

    /// Copies the bytes of `range`.
    pub(super) fn copy_range(
        &self,
        range: Range<u64>,
        outlet: &mut PieceOutlet<'_>,
    ) -> Result<(), VolumeReadError> {
        let mut at = range.start;
        while at < range.end {
            let room = outlet.spare_capacity(range.end - at);
            let count = retry_on_intr(|| pread(self.file, &mut *room, at))
                .map_err(|errno| VolumeReadError::from_errno("read", self.path, errno))?;
            if count == 0 {
                return Err(self.shrunk_error(at));
            }
            at += count as u64;
            outlet.mark_filled(count)?;
        }
        Ok(())
    }

    /// Returns the error for a file that now ends at byte `at`.
    pub(super) fn shrunk_error(&self, at: u64) -> VolumeReadError {
        VolumeReadError::Shrank { path: self.path.to_owned(), announced: self.size, at }
    }
}
