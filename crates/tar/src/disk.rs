//! The disk image in a tar. A clone from a filesystem volume to a block device sends such a tar.
//!
//! The first file named `disk.img` is the disk, so its size is known before the target is touched.
//! As in upstream CDI, a file whose name merely contains `disk.img` is accepted too. If a file
//! with the exact name follows, the transfer fails, because the first one may have been the wrong
//! one.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::error::{ArchiveErrorKind, Error};

use super::entries::{TarEntry, TarEntryKind, TarReader};
use super::expanded::ExpandedFile;
use super::name::printable_name;

/// The name that CDI gives to the disk of a volume.
const DISK_IMAGE: &[u8] = b"disk.img";

/// The disk of a clone, with its holes filled with zeros. The end of the stream is reported only
/// after the rest of the archive was read.
pub(crate) struct DiskImage {
    file: ExpandedFile,
    /// The name of the file, if it contains `disk.img` but is not equal to it.
    guess: Option<Vec<u8>>,
    ended: bool,
}

impl DiskImage {
    /// Reads the tar up to the data of the disk: the first file, in any directory, whose name is
    /// or contains `disk.img`.
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

    /// The size of the disk in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads the rest of the archive. Fails if the name of the disk only resembled `disk.img` and
    /// a file with the exact name follows.
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
    fn a_disk_image_is_recognised_by_its_last_path_component() {
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
