//! Collects the facts that `qemu-img info` prints about an image. Only the head of the image is
//! read (the footer for a fixed VHD), and no other file is opened.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use diskimage::{
    DETECT_BYTES, Error as ImageError, Format, HEAD_BYTES, Image, MAX_HEAD_BYTES, vhd,
};
use serde::Serialize;

/// Size of a sector. Disks consist of whole sectors: the missing part of a raw image's last sector
/// reads as zeros.
const SECTOR_BYTES: u64 = 512;

/// The unit of `st_blocks` (stat(2)), whatever the block size of the filesystem is.
const BLOCK_BYTES: u64 = 512;

/// The fields of QEMU's `ImageInfo` (`qapi/block-core.json`) that can be read from the head of an
/// image, in QEMU's order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ImageSummary {
    /// Size of the disk in bytes.
    pub(crate) virtual_size: u64,
    pub(crate) filename: String,
    /// Allocation unit in bytes, if the format uses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster_size: Option<u64>,
    pub(crate) format: &'static str,
    /// Number of bytes that the file occupies on its volume; 0 for a device.
    pub(crate) actual_size: u64,
    /// The backing file, if the image contains only the differences to another image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backing_filename: Option<String>,
    /// True if the image was not closed properly.
    #[serde(rename = "dirty-flag")]
    pub(crate) is_dirty: bool,
}

/// Reasons why an image cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectionError {
    /// The path does not lead to a readable file or block device.
    #[error("{0}")]
    Path(io::Error),
    /// Reading the image failed.
    #[error("cannot read it: {0}")]
    Read(io::Error),
    /// The content is not a valid image, or its format is not supported.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Inspects the file or block device `path`. Without a `format`, the format is detected from the
/// content, as in QEMU: content without the signature of an image is a raw disk. This includes a
/// fixed VHD.
pub(crate) fn inspect_image(
    path: &Path,
    format: Option<Format>,
) -> Result<ImageSummary, InspectionError> {
    // This is checked before the file is opened, because opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(InspectionError::Path)?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(InspectionError::Path(io::Error::other(
            "neither a regular file nor a block device",
        )));
    }
    let mut file = File::open(path).map_err(InspectionError::Path)?;
    let length = file.seek(SeekFrom::End(0)).map_err(InspectionError::Read)?;
    let mut facts = match (format, read_head(&file, DETECT_BYTES)?) {
        (Some(Format::Vhd), head) if !head.starts_with(vhd::COOKIE) => fixed_vhd(&file, length)?,
        (wanted, head) => match Format::resolve_wanted(&head, wanted)? {
            Format::Raw => summary(Format::Raw, length.next_multiple_of(SECTOR_BYTES)),
            format => inspect_mapped(&file, format)?,
        },
    };
    facts.filename = path.display().to_string();
    facts.actual_size = metadata.blocks().saturating_mul(BLOCK_BYTES);
    Ok(facts)
}

fn summary(format: Format, virtual_size: u64) -> ImageSummary {
    ImageSummary { format: format.qemu_name(), virtual_size, ..ImageSummary::default() }
}

fn fixed_vhd(file: &File, length: u64) -> Result<ImageSummary, InspectionError> {
    let mut last = [0; vhd::FOOTER_BYTES];
    let at = length.saturating_sub(last.len() as u64);
    let last = match file.read_exact_at(&mut last, at) {
        Ok(()) => last.as_slice(),
        // For a file that is too short, the parser gets no footer and reports what is wrong.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => &[],
        Err(error) => return Err(InspectionError::Read(error)),
    };
    Ok(summary(Format::Vhd, vhd::fixed_size(last, length)?))
}

/// Inspects an image that contains an allocation map. All facts are in the head of the image.
fn inspect_mapped(file: &File, format: Format) -> Result<ImageSummary, InspectionError> {
    let mut wanted = HEAD_BYTES;
    let (image, backing_filename) = loop {
        let head = read_head(file, wanted)?;
        match open_image(format, &head) {
            // If the file ended earlier, there is no more of the head, whatever the header states.
            Err(ImageError::ShortHeader { needed, .. })
                if head.len() == wanted
                    && (wanted as u64 + 1..=MAX_HEAD_BYTES as u64).contains(&needed) =>
            {
                wanted = usize::try_from(needed).unwrap_or(MAX_HEAD_BYTES);
            }
            opened => break opened?,
        }
    };
    let facts = image.head_facts();
    Ok(ImageSummary {
        cluster_size: facts.cluster_size,
        backing_filename,
        is_dirty: facts.features.iter().any(|feature| feature == "dirty"),
        ..summary(format, facts.virtual_size)
    })
}

fn open_image(format: Format, head: &[u8]) -> Result<(Image, Option<String>), ImageError> {
    match Image::open(format, head) {
        Err(ImageError::BackingFile(_)) => {
            Image::open_delta(head).map(|(image, base)| (image, base.map(|base| base.name)))
        }
        opened => Ok((opened?, None)),
    }
}

/// Reads the first `length` bytes, or the whole file if it is shorter.
fn read_head(file: &File, length: usize) -> Result<Vec<u8>, InspectionError> {
    let (mut head, mut reader) = (Vec::new(), file);
    let read = reader.rewind().and_then(|()| reader.take(length as u64).read_to_end(&mut head));
    read.map_err(InspectionError::Read)?;
    Ok(head)
}
