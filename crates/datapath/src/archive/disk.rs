//! The disk image in a tar: what a clone of a filesystem onto a block device sends.
//!
//! The first file named `disk.img` is the disk, so that its size is known before the target is touched. As upstream,
//! a file with that in its name is taken as well; if the real one follows, the transfer fails, because it may have
//! been the wrong one.

use bytes::Bytes;

use super::entries::{TarEntry, TarEntryKind, TarReader};
use super::expanded::ExpandedFile;
use super::name::printable_name;
use crate::chunks::ChunkStream;
use crate::error::{ArchiveErrorKind, Error};

/// Name that CDI gives the disk of a volume.
const DISK_IMAGE: &[u8] = b"disk.img";

/// The disk of a clone, expanded. Its end is reported when the rest of the archive was read.
pub(crate) struct DiskImage {
    file: ExpandedFile,
    /// The name, if it only resembles that of a disk.
    guess: Option<Vec<u8>>,
    ended: bool,
}

impl DiskImage {
    /// Finds the disk: the first file called `disk.img`, in whatever directory, or with that in its name.
    pub(crate) fn find_disk(stream: Box<dyn ChunkStream>) -> Result<Self, Error> {
        let mut entries = TarReader::new(stream);
        while let Some(entry) = entries.next_entry()? {
            let TarEntryKind::File { size, .. } = entry.kind else {
                continue;
            };
            if contains_disk_image(&entry.name) {
                return Ok(Self {
                    file: ExpandedFile::new(entries, size),
                    guess: (!is_disk_image(&entry.name)).then_some(entry.name),
                    ended: false,
                });
            }
        }
        entries.drain_stream()?;
        Err(entries.entry_error(ArchiveErrorKind::NoDiskImage))
    }

    /// Bytes of the disk.
    pub(crate) fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads the rest of the archive. A file that only resembled the disk is none if the disk follows.
    fn drain_archive(&mut self) -> Result<(), Error> {
        let entries = &mut self.file.entries;
        while let Some(TarEntry { name, kind, .. }) = entries.next_entry()? {
            if let Some(guess) = &self.guess
                && matches!(kind, TarEntryKind::File { .. })
                && is_disk_image(&name)
            {
                let first = printable_name(guess);
                return Err(entries.entry_error(ArchiveErrorKind::TwoDiskImages { first }));
            }
        }
        entries.drain_stream()?;
        self.ended = true;
        Ok(())
    }
}

impl ChunkStream for DiskImage {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ended {
            return Ok(None);
        }
        match self.file.next_chunk()? {
            Some(bytes) => Ok(Some(bytes)),
            None => self.drain_archive().map(|()| None),
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
