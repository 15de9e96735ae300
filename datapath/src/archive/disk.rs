//! The disk image in a tar: what a clone of a filesystem onto a block device sends.

use bytes::Bytes;

use super::entries::{Entries, Entry, Kind};
use super::error::ArchiveErrorKind;
use super::name::printable;
use crate::chunks::Chunks;
use crate::error::Error;
use crate::target::ZEROS;

/// What CDI calls the disk of a volume.
const DISK_IMAGE: &[u8] = b"disk.img";

/// The disk of a clone, expanded. Its end is reported when the rest of the archive was read.
pub(crate) struct DiskImage {
    entries: Entries,
    /// The name, if it only resembles that of a disk.
    guess: Option<Vec<u8>>,
    size: u64,
    position: u64,
    /// Stored bytes behind a hole.
    waiting: Option<(u64, Bytes)>,
    ended: bool,
}

impl DiskImage {
    /// Finds the disk: the first file called `disk.img`, in whatever directory, or with that in its name.
    pub(crate) fn find(stream: Box<dyn Chunks>) -> Result<Self, Error> {
        let mut entries = Entries::new(stream);
        while let Some(entry) = entries.next_entry()? {
            let Kind::File { size, .. } = entry.kind else {
                continue;
            };
            if contains_disk_image(&entry.name) {
                return Ok(Self {
                    entries,
                    guess: (!is_disk_image(&entry.name)).then_some(entry.name),
                    size,
                    position: 0,
                    waiting: None,
                    ended: false,
                });
            }
        }
        entries.drain()?;
        Err(entries.refuse(ArchiveErrorKind::NoDiskImage))
    }

    /// Bytes of the disk.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Reads the rest of the archive. A file that only resembled the disk is none if the disk follows.
    fn finish(&mut self) -> Result<(), Error> {
        while let Some(Entry { name, kind, .. }) = self.entries.next_entry()? {
            if let Some(guess) = &self.guess
                && matches!(kind, Kind::File { .. })
                && is_disk_image(&name)
            {
                let first = printable(guess);
                return Err(self.entries.refuse(ArchiveErrorKind::TwoDiskImages { first }));
            }
        }
        self.entries.drain()?;
        self.ended = true;
        Ok(())
    }

    /// Part of a hole that ends at `end`.
    fn hole(&mut self, end: u64) -> Bytes {
        let length = usize::try_from(end - self.position)
            .unwrap_or(usize::MAX)
            .min(ZEROS.len());
        self.position += length as u64;
        Bytes::from_static(&ZEROS[..length])
    }
}

impl Chunks for DiskImage {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ended {
            return Ok(None);
        }
        if self.waiting.is_none() {
            self.waiting = self.entries.next_data()?;
        }
        match self.waiting.take() {
            Some((offset, bytes)) if offset > self.position => {
                self.waiting = Some((offset, bytes));
                Ok(Some(self.hole(offset)))
            }
            Some((_, bytes)) => {
                self.position += bytes.len() as u64;
                Ok(Some(bytes))
            }
            None if self.position < self.size => Ok(Some(self.hole(self.size))),
            None => self.finish().map(|()| None),
        }
    }
}

fn is_disk_image(name: &[u8]) -> bool {
    name.rsplit(|byte| *byte == b'/').next() == Some(DISK_IMAGE)
}

fn contains_disk_image(name: &[u8]) -> bool {
    name.windows(DISK_IMAGE.len()).any(|window| window == DISK_IMAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_known_by_its_last_component() {
        for (name, exact, contained) in [
            (&b"disk.img"[..], true, true),
            (b"./disk.img", true, true),
            (b"vm/disk.img", true, true),
            (b"old-disk.img.bak", false, true),
            (b"disk.img/notes", false, true),
            (b"disk.im", false, false),
        ] {
            assert_eq!(is_disk_image(name), exact);
            assert_eq!(contains_disk_image(name), contained);
        }
    }
}
