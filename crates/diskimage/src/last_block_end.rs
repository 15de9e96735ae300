//! The minimum length of an image, given all blocks that its tables refer to.

use crate::Error;
use crate::offsets::Host;

/// The end of the last block found so far. QEMU requires every block of a VHD to be complete. This
/// includes the last block, even if the disk uses only a part of it, and blocks beyond the end of
/// the disk.
#[derive(Debug, Default)]
pub(crate) struct LastBlockEnd(Host);

impl LastBlockEnd {
    /// Records a block of the image that ends at `end`.
    pub(crate) fn extend_to(&mut self, end: Host) {
        self.0 = self.0.max(end);
    }

    /// Fails if a block lies beyond the end of the image.
    pub(crate) fn check_end(&self, end: Host) -> Result<(), Error> {
        if self.0 <= end {
            return Ok(());
        }
        Err(Error::truncated_error("the last byte of a block", Host(self.0.0 - 1), end))
    }
}
