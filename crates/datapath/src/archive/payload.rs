//! The archive around an image: a clone of a directory, or an appliance.

use diskimage::{DETECT_BYTES, Error as ImageError, Format};

use super::appliance::ApplianceDisk;
use super::disk::DiskImage;
use crate::error::Error;
use crate::input::TransferInput;
use crate::options::{HEADER_BYTES, PayloadKind, ReadOptions};

/// The image that `payload` says is in the archive `input`; `input` itself if it is the image.
pub(crate) fn open_payload(
    input: TransferInput,
    payload: PayloadKind,
    reading: &ReadOptions,
) -> Result<TransferInput, Error> {
    let mut promised = None;
    let mut image = match payload {
        PayloadKind::Image(_) => return Ok(input),
        PayloadKind::CloneOfFiles => input.enter_archive("tar", DiskImage::find_disk, DiskImage::size)?,
        PayloadKind::Appliance(format) => {
            let find = |stream| {
                let appliance = ApplianceDisk::find_disk(stream)?;
                promised = appliance.expected_format().filter(|_| format.is_none());
                Ok(appliance)
            };
            let mut disk = input.enter_archive("ova", find, ApplianceDisk::size)?;
            // Behind the disk there may be another one, or the manifest with the digest of this one.
            disk.read_to_end();
            disk
        }
    };
    reading.check_header(&image.peek(HEADER_BYTES)?)?;
    if let Some(wanted) = promised {
        check_promise(&mut image, wanted)?;
    }
    Ok(image)
}

/// Fails if an image whose name says that it is of the format `wanted` begins like a raw disk. Nothing is called `disk.vmdk` and
/// does that but a disk that a description in another file belongs to.
fn check_promise(image: &mut TransferInput, wanted: Format) -> Result<(), Error> {
    let found = Format::resolve_wanted(&image.peek(DETECT_BYTES)?, None)?;
    if found == Format::Raw {
        return Err(ImageError::NotThatFormat { wanted, found }.into());
    }
    Ok(())
}
