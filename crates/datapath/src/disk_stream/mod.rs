//! Reads a disk from its first byte to its last, for a target that is itself a stream.
//! [`transfer_image`](crate::transfer_image) writes clusters at their offsets as they arrive; a
//! stream has no offsets, so the clusters of an image are read in the order of the disk.

mod in_order;
mod qcow2;
mod scratch_disk;

use codec::decode;
use codec::encode::blocks::BlockOutlet;
use codec::encode::outlet::PieceOutlet;
use diskimage::Format;
use inspect::raw::EndingKind;
use stream::error::{Error, SourceError, SourceErrorKind};
use stream::facts::{ImageFacts, RouteTaken};
use stream::meter::Meter;
use stream::observe::Stage;
use stream::options::{PayloadKind, ReadOptions};
use stream::source::Source;

pub use self::qcow2::write_qcow2;
use crate::format::{PreparedImage, raw};
use crate::options::{ReadRoute, WriteOptions};
use crate::transfer::refuse_changes;

/// A disk that was streamed to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamedDisk {
    /// Facts about the image.
    pub facts: ImageFacts,
    /// Bytes of the disk.
    pub virtual_size: u64,
    /// Source bytes that were read.
    pub source_bytes: u64,
    /// The digest of the whole source, if one was requested.
    pub checksum: Option<String>,
}

/// Maximum size of a streamed disk in bytes: 64 TiB, the largest VHDX ([MS-VHDX] §1). A qcow2
/// header of a few bytes may state 2 EiB.
const MAX_STREAMED_BYTES: u64 = 64 << 40;

/// Passes the disk in `source` to `outlet`. The pieces depend only on the content of the disk, not
/// on the sizes of reads or on holes, so equal disks give equal pieces.
///
/// An image with a map is read by ranges, in the order of the disk. If that is impossible, because
/// the source has no ranges or a digest covers the whole source, the disk is first written to an
/// unnamed file in `writing.scratch`; without that directory the image is refused.
pub fn stream_disk(
    source: &dyn Source,
    payload: PayloadKind,
    reading: &ReadOptions,
    writing: &WriteOptions,
    outlet: &mut PieceOutlet<'_>,
) -> Result<StreamedDisk, Error> {
    refuse_changes(source)?;
    let (payload, reading) = reading.for_payload(payload, source);
    let reading = &reading;
    let meter = Meter::new(source, reading)?;
    let readings = meter.readings();
    let route = if meter.must_read_all() { ReadRoute::OnePass } else { writing.route };
    let input = decode::decode_input(meter, reading, &writing.decode_limits(&reading.limits))?;
    let mut input = tar::open_payload(input, payload, reading)?;
    let image = PreparedImage::open(source, &mut input, payload, reading, route)?;
    let mut facts = image.image_facts(&input);
    reading.observer.record_image(&facts);
    check_possible(facts.virtual_size.unwrap_or(0))?;

    let mut blocks = BlockOutlet::new(outlet);
    let mut source_bytes = None;
    match image {
        PreparedImage::Raw { virtual_size, ending, .. } => {
            let limit = virtual_size.filter(|_| ending == EndingKind::Footer);
            blocks.limit = limit.unwrap_or(u64::MAX);
            let copied = raw::pass_in_order(&mut input, ending, |bytes| {
                check_possible(blocks.position().saturating_add(bytes.len() as u64))?;
                Ok(blocks.append_data(&bytes)?)
            })?;
            (facts.format, facts.virtual_size) = (copied.format, Some(copied.virtual_size));
        }
        PreparedImage::Mapped(mapped) if facts.route == RouteTaken::Ranged => {
            source_bytes = Some(readings.time_stage(Stage::Format, || {
                in_order::pass_mapped(mapped, source, &mut input, reading, &mut blocks)
            })?);
        }
        PreparedImage::Mapped(_) => {
            let disk = scratch_disk::write_to_scratch(image, &mut input, &facts, reading, writing)?;
            scratch_disk::pass_file(disk, reading, &mut blocks)?;
        }
    }
    let virtual_size = facts.virtual_size.unwrap_or(blocks.position());
    reading.check_disk_size(virtual_size)?;
    if virtual_size < blocks.position() {
        return Err(trailing_bytes_error(facts.format, virtual_size, blocks.position()));
    }
    // The footer of a VHD states a size only at the end of the stream.
    check_possible(virtual_size)?;
    blocks.append_zeros(virtual_size - blocks.position())?;
    let checksum = input.finish_reading()?;
    blocks.finish()?;
    reading.check_stop()?;
    let source_bytes = source_bytes.unwrap_or_else(|| readings.position());
    Ok(StreamedDisk { facts, virtual_size, source_bytes, checksum })
}

/// Returns an error for a disk above [`MAX_STREAMED_BYTES`]. A target on a disk is limited by its
/// space, but a stream would be filled with zeros for months.
fn check_possible(virtual_size: u64) -> Result<(), Error> {
    if virtual_size <= MAX_STREAMED_BYTES {
        return Ok(());
    }
    let message = format!(
        "the disk would be {virtual_size} bytes, but at most {MAX_STREAMED_BYTES} are supported: check the source"
    );
    Err(SourceError::new(SourceErrorKind::Invalid, message).into())
}

/// The error for a disk whose size became known only after more bytes had passed: the footer of a
/// fixed VHD that is compressed, and rounds its size down.
fn trailing_bytes_error(format: Format, virtual_size: u64, passed: u64) -> Error {
    let message = format!(
        "the {format} disk has {virtual_size} bytes, but {passed} bytes precede its footer: decompress the image first"
    );
    SourceError::new(SourceErrorKind::Invalid, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossibly_large_disk_is_refused() {
        check_possible(MAX_STREAMED_BYTES).unwrap();
        let error = check_possible(MAX_STREAMED_BYTES + 1).unwrap_err().to_string();
        assert!(error.contains("at most 70368744177664 are supported"), "{error}");
    }
}
