//! Facts that `qemu-img info` tells about an image: its head is read, and no other file is opened.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use diskimage::{DETECT_BYTES, Error as ImageError, Format, HEAD_BYTES, Image, MAX_HEAD_BYTES, vhd};

/// Disks have whole sectors: what a raw image lacks of its last one reads as zeros.
const SECTOR_BYTES: u64 = 512;

/// The unit of `st_blocks` (stat(2)), whatever the filesystem's own is.
const BLOCK_BYTES: u64 = 512;

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageSummary {
    pub(crate) format: Format,
    /// Bytes of the disk.
    pub(crate) virtual_size: u64,
    /// Bytes that the file takes on its volume; none of a device.
    pub(crate) actual_size: u64,
    /// Bytes that are allocated together, where the format has such.
    pub(crate) cluster_size: Option<u64>,
    /// The image that it is a difference to.
    pub(crate) backing_file: Option<String>,
    /// True if the image was not closed properly.
    pub(crate) is_dirty: bool,
}

/// The reason why there is nothing to tell.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectionError {
    /// There is no image at that path that we may read.
    #[error("{0}")]
    Path(io::Error),
    /// The image cannot be read.
    #[error("cannot read it: {0}")]
    Read(io::Error),
    /// The content is no sound image, or one of a format that we do not know.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Looks at the file or block device `path`. Without a `format` the content decides, as in QEMU: what has no signature of an
/// image is a raw disk, a fixed VHD included.
pub(crate) fn inspect_image(path: &Path, format: Option<Format>) -> Result<ImageSummary, InspectionError> {
    // Before it is opened: a pipe would be waited for.
    let metadata = std::fs::metadata(path).map_err(InspectionError::Path)?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(InspectionError::Path(io::Error::other("neither a regular file nor a block device")));
    }
    let mut file = File::open(path).map_err(InspectionError::Path)?;
    let length = file.seek(SeekFrom::End(0)).map_err(InspectionError::Read)?;
    let mut facts = match (format, read_head(&file, DETECT_BYTES)?) {
        (Some(Format::Vhd), head) if !head.starts_with(vhd::COOKIE) => fixed_vhd(&file, length)?,
        (wanted, head) => match Format::resolve_wanted(&head, wanted)? {
            Format::Raw => raw_summary(length),
            format => inspect_mapped(&file, format)?,
        },
    };
    facts.actual_size = metadata.blocks().saturating_mul(BLOCK_BYTES);
    Ok(facts)
}

fn raw_summary(length: u64) -> ImageSummary {
    ImageSummary {
        format: Format::Raw,
        virtual_size: length.next_multiple_of(SECTOR_BYTES),
        actual_size: 0,
        cluster_size: None,
        backing_file: None,
        is_dirty: false,
    }
}

fn fixed_vhd(file: &File, length: u64) -> Result<ImageSummary, InspectionError> {
    let mut last = [0; vhd::FOOTER_BYTES];
    let at = length.saturating_sub(last.len() as u64);
    let last = match file.read_exact_at(&mut last, at) {
        Ok(()) => last.as_slice(),
        // The parser says what is wrong with what there is.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => &[],
        Err(error) => return Err(InspectionError::Read(error)),
    };
    Ok(ImageSummary { format: Format::Vhd, virtual_size: vhd::fixed_size(last, length)?, ..raw_summary(0) })
}

/// An image with a map, of which the head tells all.
fn inspect_mapped(file: &File, format: Format) -> Result<ImageSummary, InspectionError> {
    let mut wanted = HEAD_BYTES;
    let (image, backing_file) = loop {
        let head = read_head(file, wanted)?;
        match open_image(format, &head) {
            // A file that ended before has no more to read, whatever its header announces.
            Err(ImageError::ShortHeader { needed, .. })
                if head.len() == wanted && (wanted as u64 + 1..=MAX_HEAD_BYTES as u64).contains(&needed) =>
            {
                wanted = usize::try_from(needed).unwrap_or(MAX_HEAD_BYTES);
            }
            opened => break opened?,
        }
    };
    let facts = image.head_facts();
    Ok(ImageSummary {
        format,
        virtual_size: facts.virtual_size,
        actual_size: 0,
        cluster_size: facts.cluster_size,
        backing_file,
        is_dirty: facts.features.iter().any(|feature| feature == "dirty"),
    })
}

fn open_image(format: Format, head: &[u8]) -> Result<(Image, Option<String>), ImageError> {
    match Image::open(format, head) {
        Err(ImageError::BackingFile(_)) => {
            let (image, name) = Image::open_delta(head)?;
            Ok((image, Some(name)))
        }
        opened => Ok((opened?, None)),
    }
}

/// The first `length` bytes, or all there are.
fn read_head(file: &File, length: usize) -> Result<Vec<u8>, InspectionError> {
    let mut head = vec![0; length];
    let mut filled = 0;
    while let Some(room) = head.get_mut(filled..).filter(|room| !room.is_empty()) {
        match file.read_at(room, filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(InspectionError::Read(error)),
        }
    }
    head.truncate(filled);
    Ok(head)
}
