//! The archive around an image: a clone of a directory, or an appliance.

use diskimage::{DETECT_BYTES, Error as ImageError, Format};

use super::appliance::Appliance;
use super::disk::DiskImage;
use crate::error::Error;
use crate::input::Input;
use crate::options::{HEADER_BYTES, Payload, Reading};

/// The image that `payload` says is in the archive `input`; `input` itself if it is the image.
pub(crate) fn enter(input: Input, payload: Payload, reading: &Reading) -> Result<Input, Error> {
    let mut promised = None;
    let mut image = match payload {
        Payload::Image(_) => return Ok(input),
        Payload::CloneOfFiles => input.enter("tar", DiskImage::find, DiskImage::size)?,
        Payload::Appliance(format) => {
            let find = |stream| {
                let appliance = Appliance::find(stream)?;
                promised = appliance.promised().filter(|_| format.is_none());
                Ok(appliance)
            };
            let mut disk = input.enter("ova", find, Appliance::size)?;
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
fn check_promise(image: &mut Input, wanted: Format) -> Result<(), Error> {
    let found = Format::decide(&image.peek(DETECT_BYTES)?, None)?;
    if found == Format::Raw {
        return Err(ImageError::NotThatFormat { wanted, found }.into());
    }
    Ok(())
}
