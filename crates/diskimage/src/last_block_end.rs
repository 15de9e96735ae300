//! The length that an image must have for all blocks that its tables refer to.

use crate::Error;
use crate::layout::AccessOrder;
use crate::offsets::Host;

/// The end of the last block so far. Of a VHD, QEMU wants all of every block, also of the last one, of which the disk may have a
/// part only, and of those behind the disk.
#[derive(Debug, Default)]
pub(crate) struct LastBlockEnd {
    image_end: Option<Host>,
    end: Host,
}

impl LastBlockEnd {
    /// Takes note of the end of the image, if it is known.
    pub(crate) fn set_image_end(&mut self, access: AccessOrder) {
        self.image_end = match access {
            AccessOrder::Ranged { image_end } => Some(image_end),
            AccessOrder::OnePass => None,
        };
    }

    /// Takes note of a block of the image that ends at `end`.
    pub(crate) fn extend_to(&mut self, end: Host) {
        self.end = self.end.max(end);
    }

    /// Fails if a block is known to be missing.
    pub(crate) fn check_known_end(&self) -> Result<(), Error> {
        self.image_end.map_or(Ok(()), |end| self.check_end(end))
    }

    /// Fails if the image, which has ended at `position`, lacks a block; in one pass its end is not known before.
    pub(crate) fn check_final_end(&self, position: Host) -> Result<(), Error> {
        self.check_end(self.image_end.unwrap_or(position))
    }

    fn check_end(&self, end: Host) -> Result<(), Error> {
        if self.end <= end {
            return Ok(());
        }
        Err(Error::Truncated { what: "the last byte of a block", offset: Host(self.end.0 - 1), end })
    }
}
