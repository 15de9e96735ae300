//! One file of an archive as the stream of its bytes, holes included.

use bytes::Bytes;

use super::entries::TarReader;
use crate::error::Error;
use crate::zeros::ZEROS;

/// The file whose entry was read last. Holes are references to the block of zeros.
pub(super) struct ExpandedFile {
    pub(super) entries: TarReader,
    size: u64,
    position: u64,
    /// Stored bytes behind a hole.
    waiting: Option<(u64, Bytes)>,
}

impl ExpandedFile {
    /// The data of the current entry of `entries`, which is a file of `size` bytes.
    pub(super) fn new(entries: TarReader, size: u64) -> Self {
        Self { entries, size, position: 0, waiting: None }
    }

    /// Bytes of the file.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The next bytes, or `None` at the end of the file. The archive may go on.
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

    /// Part of a hole that ends at `end`.
    fn read_hole(&mut self, end: u64) -> Bytes {
        let length = usize::try_from(end - self.position).unwrap_or(usize::MAX).min(ZEROS.len());
        self.position += length as u64;
        Bytes::from_static(&ZEROS[..length])
    }
}
