//! Applies a qcow2 image that holds the difference to its backing file.

use codec::decode;
use codec::input::TransferInput;
use diskimage::{Error as ImageError, Format, HEAD_BYTES, Image};
use inspect::ImageHead;
use stream::error::{Error, FormatError};
use stream::meter::Meter;
use stream::observe::TransferPhase;
use stream::options::{PayloadKind, ReadOptions};
use stream::source::Source;

use super::{DeltaBase, last_part};
use crate::disk::{self, Disk, Writer, with_timed_writer};
use crate::format::MappedImage;
use crate::options::WriteOptions;
use crate::transfer::TransferReport;

/// Applies the image in `source` to the disk of `base`.
pub(super) fn apply_qcow2(
    source: &dyn Source,
    base: &DeltaBase,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<TransferReport, Error> {
    reading.observer.begin_phase(TransferPhase::Info);
    disk::refuse_source(&base.disk.path, source)?;
    let meter = Meter::new(source, reading)?;
    let mut input = decode::decode_input(meter, reading, &writing.decode_limits(&reading.limits))?;
    let image = open_delta(&mut input, base, reading)?;
    let mut delta = MappedImage::start(image, source, &mut input, reading, writing.route)?;
    let facts = delta.image_facts(input.layer_names());
    reading.observer.record_image(&facts);

    reading.observer.begin_phase(TransferPhase::Transfer);
    let disk = super::open_base(base, delta.facts.virtual_size)?;
    disk.grow_file(delta.facts.virtual_size)?;
    write_delta(&mut delta, &mut input, &disk, reading, writing)?;
    super::finish_delta(facts, delta.facts.virtual_size, input, disk, reading)
}

/// Opens a delta whose base must be `base`.
fn open_delta(
    input: &mut TransferInput,
    base: &DeltaBase,
    reading: &ReadOptions,
) -> Result<Image, Error> {
    let ImageHead { format, .. } = ImageHead::read(input, PayloadKind::default(), reading)?;
    if format != Format::Qcow2 {
        let error = ImageError::NotThatFormat { wanted: Format::Qcow2, found: format };
        return Err(error.into());
    }
    let (image, backing_file) = Image::open_delta(&input.peek(HEAD_BYTES)?)?;
    let found = backing_file.as_ref().map(|file| file.name.as_str());
    check_base(found, base.name.as_deref())?;
    Ok(image)
}

/// Writes first the data, then the zeros. The two never overlap: the delta defines each guest byte
/// as data or as zero, or leaves it unchanged.
fn write_delta(
    delta: &mut MappedImage,
    input: &mut TransferInput,
    disk: &Disk,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<(), Error> {
    let readings = input.readings();
    let tick = |writer: &Writer<'_>| writer.disk().report_progress(&readings);
    with_timed_writer(
        disk,
        delta.facts.clusters,
        Some(delta.facts.virtual_size),
        writing.workers,
        (&reading.stop, &readings),
        |writer| delta.copy_data(input, writer, reading, writing, tick),
    )?;
    for range in delta.zero_ranges() {
        disk.time_wait(|| disk.zero_in_steps(range.start.0..range.end.0, &reading.stop))?;
    }
    Ok(())
}

/// Rejects a delta to another base, which would destroy the disk.
fn check_base(backing_file: Option<&str>, expected: Option<&str>) -> Result<(), Error> {
    let found = backing_file.map(last_part);
    if found == expected {
        return Ok(());
    }
    Err(match (found, expected) {
        (None, _) => FormatError::NoDelta.into(),
        (Some(found), None) => FormatError::NamedBase { found: found.to_owned() }.into(),
        (Some(found), Some(expected)) => {
            FormatError::Base { found: found.to_owned(), expected: expected.to_owned() }.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_without_a_name_is_accepted_only_if_none_is_expected() {
        assert!(
            check_base(None, None).is_ok() && check_base(Some("/a/snap"), Some("snap")).is_ok()
        );
        let error = check_base(None, Some("snap")).unwrap_err().to_string();
        assert!(error.contains("no backing file"), "{error}");
        let error = check_base(Some("/images/snap"), None).unwrap_err().to_string();
        assert!(error.contains("has the backing file 'snap'"), "{error}");
    }
}
