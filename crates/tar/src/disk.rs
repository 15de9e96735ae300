//! The disk image in a tar. A clone from a filesystem volume to a block device sends such a tar.
//!
//! The first file named `disk.img` is the disk, so its size is known before the target is touched.
//! As in upstream CDI, a file whose name merely contains `disk.img` is accepted too. If a file
//! with the exact name follows, the transfer fails, because the first one may have been the wrong
//! one.

use stream::chunks::ChunkStream;
use stream::error::{ArchiveErrorKind, Error};

use super::entries::{TarEntry, TarEntryKind, TarReader};
use super::find::{ArchivedFile, MemberSearch, SearchResult, find_file};
use super::name::printable_name;

/// The name that CDI gives to the disk of a volume.
const DISK_IMAGE: &[u8] = b"disk.img";

/// The search for the disk of a clone.
#[derive(Default)]
pub(crate) struct CloneSearch {
    /// The name of the file that was found.
    found: Option<Vec<u8>>,
}

/// Reads the tar up to the data of the disk: the first file, in any directory, whose name is or
/// contains `disk.img`.
pub(crate) fn find_clone(
    stream: Box<dyn ChunkStream>,
) -> Result<Box<ArchivedFile<CloneSearch>>, Error> {
    match find_file(stream, CloneSearch::default())? {
        SearchResult::File(file) => Ok(file),
        SearchResult::Nothing { archive, .. } => {
            Err(archive.entry_error(ArchiveErrorKind::NoDiskImage))
        }
    }
}

impl MemberSearch for CloneSearch {
    fn inspect_member(&mut self, entry: &TarEntry, archive: &mut TarReader) -> Result<bool, Error> {
        if !matches!(entry.kind, TarEntryKind::File { .. }) {
            return Ok(false);
        }
        match &self.found {
            None if contains_disk_image(&entry.name) => {
                self.found = Some(entry.name.clone());
                Ok(true)
            }
            Some(guess) if !is_disk_image(guess) && is_disk_image(&entry.name) => {
                let first = printable_name(guess);
                Err(archive.entry_error(ArchiveErrorKind::Refused(format!(
                    "`{first}` came before this entry, and both may be the disk image: archive only one of them"
                ))))
            }
            _ => Ok(false),
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
