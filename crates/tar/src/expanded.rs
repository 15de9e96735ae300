//! One file of an archive as a stream of all its bytes. Holes are returned as zeros.

use bytes::Bytes;
use stream::error::Error;
use stream::zeros::ZEROS;

use super::entries::TarReader;

/// The file of the entry that was read last. Holes are returned as slices of a shared block of
/// zeros, so no memory is allocated for them.
pub(super) struct ExpandedFile {
    pub(super) entries: TarReader,
    size: u64,
    position: u64,
    /// Offset and content of stored bytes that were read but follow a hole not yet returned.
    waiting: Option<(u64, Bytes)>,
}

impl ExpandedFile {
    /// Streams the data of the current entry of `entries`, which is a file of `size` bytes.
    pub(super) fn new(entries: TarReader, size: u64) -> Self {
        Self { entries, size, position: 0, waiting: None }
    }

    /// The size of the file in bytes, holes included.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the next bytes, or `None` at the end of the file. More entries of the archive may
    /// follow.
    pub(super) fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.waiting.is_none() {
            self.waiting = self.entries.next_data()?;
        }
        match self.waiting.take() {
            Some((offset, bytes)) if offset > self.position => {
                self.waiting = Some((offset, bytes));
                Ok(Some(self.read_hole(offset)))
            }
            Some((_, bytes)) => {
                self.position += bytes.len() as u64;
                Ok(Some(bytes))
            }
            None if self.position < self.size => Ok(Some(self.read_hole(self.size))),
            None => Ok(None),
        }
    }

    /// Returns zeros for the next part of the hole that ends at `end`.
    fn read_hole(&mut self, end: u64) -> Bytes {
        let length = usize::try_from(end - self.position).unwrap_or(usize::MAX).min(ZEROS.len());
        self.position += length as u64;
        Bytes::from_static(&ZEROS[..length])
    }
}
