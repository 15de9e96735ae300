//! Opens the archive around an image: the clone of a directory, or an appliance.
//!
//! A clone from a filesystem volume to a block device sends such a tar. The first file named
//! `disk.img` is the disk, so its size is known before the target is touched. As in upstream CDI, a
//! file whose name merely contains `disk.img` is accepted too. If a file with the exact name
//! follows, the transfer fails, because the first one may have been the wrong one.

use codec::decode::decode_file;
use codec::input::TransferInput;
use diskimage::{DETECT_BYTES, Error as ImageError, Format};
use stream::chunks::ChunkStream;
use stream::error::{ArchiveErrorKind, Error};
use stream::options::{HEADER_BYTES, PayloadKind, ReadOptions};

use super::appliance::find_appliance;
use super::entries::{TarEntry, TarEntryKind, TarReader};
use super::find::{ArchivedFile, MemberSearch, SearchResult, find_file};
use super::name::printable_name;

/// The name that CDI gives to the disk of a volume.
const DISK_IMAGE: &[u8] = b"disk.img";

/// Returns the image inside the archive `input`, according to `payload`. Returns `input` itself if
/// it is the image.
pub fn open_payload(
    input: TransferInput,
    payload: PayloadKind,
    reading: &ReadOptions,
) -> Result<TransferInput, Error> {
    let mut promised = None;
    let mut named = None;
    let mut image = match payload {
        PayloadKind::Image(_) | PayloadKind::Disk(_) => return Ok(input),
        PayloadKind::CloneOfFiles => input.enter_archive("tar", find_clone, |file| file.size())?,
        PayloadKind::Appliance(format) => {
            let find = |stream| {
                let file = find_appliance(stream)?;
                named = file.search.expected_format();
                promised = named.filter(|_| format.is_none());
                Ok(file)
            };
            let mut disk = input.enter_archive("ova", find, |file| file.size())?;
            // The archive is read to its end, because the disk may be followed by a second disk,
            // which is an error, or by the manifest with its digest.
            disk.read_to_end();
            // OVF lets files be compressed by gzip (DSP0243, `ovf:compression`). The bytes of a
            // raw disk belong to its guest, so they are not looked at.
            match named {
                Some(_) => decode_file(disk, &reading.limits)?,
                None => disk,
            }
        }
    };
    reading.check_header(&image.peek(HEADER_BYTES)?)?;
    if let Some(wanted) = promised {
        check_promise(&mut image, wanted)?;
    }
    Ok(image)
}

/// Fails if the file extension indicates the format `wanted` but the content begins like a raw
/// disk. A file `disk.vmdk` with such content is only the data of a disk whose descriptor is in
/// another file.
fn check_promise(image: &mut TransferInput, wanted: Format) -> Result<(), Error> {
    let found = Format::resolve_wanted(&image.peek(DETECT_BYTES)?, None)?;
    if found == Format::Raw {
        return Err(ImageError::NotThatFormat { wanted, found }.into());
    }
    Ok(())
}

/// The search for the disk of a clone.
#[derive(Default)]
struct CloneSearch {
    /// The name of the file that was found.
    found: Option<Vec<u8>>,
}

/// Reads the tar up to the data of the disk: the first file, in any directory, whose name is or
/// contains `disk.img`.
fn find_clone(stream: Box<dyn ChunkStream>) -> Result<Box<ArchivedFile<CloneSearch>>, Error> {
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
