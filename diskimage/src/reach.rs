//! How long an image must be for all blocks that its tables refer to.

use crate::Error;
use crate::layout::Access;

/// The end of the last block so far. Of a VHD, QEMU wants all of every block, also of the last one, of which the disk may have a
/// part only, and of those behind the disk.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    image_length: Option<u64>,
    end: u64,
}

impl Reach {
    /// How the image comes.
    pub(crate) fn begin(&mut self, access: Access) {
        self.image_length = match access {
            Access::Ranged { image_length } => Some(image_length),
            Access::OnePass => None,
        };
    }

    /// A block that ends at `end` belongs to the image.
    pub(crate) fn extend(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Fails if a block is known to be missing.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.image_length
            .map_or(Ok(()), |length| self.check_length(length))
    }

    /// The same when the image has ended at `position`, which says something only in one pass.
    pub(crate) fn finish(&self, position: u64) -> Result<(), Error> {
        self.check_length(self.image_length.unwrap_or(position))
    }

    fn check_length(&self, length: u64) -> Result<(), Error> {
        if self.end <= length {
            return Ok(());
        }
        Err(Error::Truncated {
            what: "the last byte of a block",
            offset: self.end - 1,
            end: length,
        })
    }
}
