//! The minimum length of an image, given all blocks that its tables refer to.

use crate::Error;
use crate::layout::AccessOrder;
use crate::offsets::Host;

/// The end of the last block found so far. QEMU requires every block of a VHD to be complete. This
/// includes the last block, even if the disk uses only a part of it, and blocks beyond the end of
/// the disk.
#[derive(Debug, Default)]
pub(crate) struct LastBlockEnd {
    image_end: Option<Host>,
    end: Host,
}

impl LastBlockEnd {
    /// Records the end of the image, if it is known.
    pub(crate) fn set_image_end(&mut self, access: AccessOrder) {
        self.image_end = match access {
            AccessOrder::Ranged { image_end } => Some(image_end),
            AccessOrder::OnePass => None,
        };
    }

    /// Records a block of the image that ends at `end`.
    pub(crate) fn extend_to(&mut self, end: Host) {
        self.end = self.end.max(end);
    }

    /// Fails if the end of the image is known and a block lies beyond it.
    pub(crate) fn check_known_end(&self) -> Result<(), Error> {
        self.image_end.map_or(Ok(()), |end| self.check_end(end))
    }

    /// Fails if a block lies beyond the end of the image, which ended at `position`. When the
    /// image is read in one pass, its end is not known earlier.
    pub(crate) fn check_final_end(&self, position: Host) -> Result<(), Error> {
        self.check_end(self.image_end.unwrap_or(position))
    }

    fn check_end(&self, end: Host) -> Result<(), Error> {
        if self.end <= end {
            return Ok(());
        }
        Err(Error::Truncated {
            what: "the last byte of a block",
            offset: Host(self.end.0 - 1),
            end,
        })
    }
}
