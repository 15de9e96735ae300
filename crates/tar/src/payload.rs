//! Opens the archive around an image: the clone of a directory, or an appliance.

use codec::decode::decode_file;
use codec::input::TransferInput;
use diskimage::{DETECT_BYTES, Error as ImageError, Format};
use stream::error::Error;
use stream::options::{HEADER_BYTES, PayloadKind, ReadOptions};

use super::appliance::find_appliance;
use super::disk::find_clone;

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
