//! A qcow2 image that is the difference to its backing file.

use diskimage::{Error as ImageError, Format, HEAD_BYTES, Image};

use super::{Base, Report};
use crate::decode;
use crate::disk::{self, Disk, Writer, with_writer};
use crate::error::{Error, FormatError};
use crate::format::{Head, Mapped};
use crate::input::Input;
use crate::meter::Meter;
use crate::observe::{Phase, Stage};
use crate::options::{Payload, Reading, Writing};
use crate::source::Source;

/// Applies the image in `source` to the disk of `base`.
pub(super) fn apply(
    source: &dyn Source,
    base: &Base,
    reading: &Reading,
    writing: &Writing,
) -> Result<Report, Error> {
    reading.observer.phase(Phase::Info);
    disk::refuse_source(&base.path, source)?;
    let meter = Meter::new(source, reading)?;
    let mut input = decode::undo(meter, reading, &writing.decode_limits(&reading.limits))?;
    let image = open(&mut input, base, reading)?;
    let mut delta = Mapped::start(image, source, &mut input, reading, writing.route)?;
    let facts = delta.image_facts(input.layers());
    reading.observer.image(&facts);

    reading.observer.phase(Phase::Transfer);
    // In place: the base stays visible all the time, since applying the delta again repairs what an interruption leaves.
    let disk = Disk::open_in_place(&base.target_options(), delta.facts.virtual_size)?;
    disk.grow(delta.facts.virtual_size)?;
    write(&mut delta, &mut input, &disk, reading, writing)?;
    let checksum = input.finish()?;
    reading.check_stop()?;
    disk.tell(&*reading.observer);
    let written_bytes = input.readings().time(Stage::Target, || disk.commit_in_place())?;
    reading.observer.target_written(written_bytes);
    reading.observer.phase(Phase::Complete);
    Ok(Report {
        facts,
        virtual_size: delta.facts.virtual_size,
        source_bytes: input.readings().position(),
        written_bytes,
        checksum,
    })
}

/// Reads the head of a delta to `base`.
fn open(input: &mut Input, base: &Base, reading: &Reading) -> Result<Image, Error> {
    let Head { format, .. } = Head::read(input, Payload::default(), reading)?;
    if format != Format::Qcow2 {
        let error = ImageError::NotThatFormat {
            wanted: Format::Qcow2,
            found: format,
        };
        return Err(error.into());
    }
    let (image, backing_file) = Image::open_delta(&input.peek(HEAD_BYTES)?)?;
    check_base(&backing_file, &base.name)?;
    Ok(image)
}

/// Data first, then zeros: each guest byte is said to be one or the other, or nothing is said about it.
fn write(
    delta: &mut Mapped,
    input: &mut Input,
    disk: &Disk,
    reading: &Reading,
    writing: &Writing,
) -> Result<(), Error> {
    let tick = |writer: &Writer<'_>| writer.disk().tell(&*reading.observer);
    let readings = input.readings();
    with_writer(
        disk,
        delta.facts.clusters,
        Some(delta.facts.virtual_size),
        writing.workers,
        &reading.stop,
        |writer| {
            readings.time(Stage::Format, || {
                let copied = delta.copy(input, writer, reading, writing, tick);
                readings.pass_over(writer.waited);
                copied
            })
        },
    )?;
    for range in delta.zeros() {
        disk.zero_in_steps(range.start.0..range.end.0, &reading.stop)?;
    }
    Ok(())
}

/// A delta to something else would destroy the disk.
fn check_base(backing_file: &str, expected: &str) -> Result<(), Error> {
    let found = backing_file.rsplit('/').next().unwrap_or_default();
    if found == expected {
        return Ok(());
    }
    Err(FormatError::Base {
        found: found.to_owned(),
        expected: expected.to_owned(),
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_known_by_the_last_part_of_its_name() {
        for name in ["snap", "/images/disk/snap", "../snap"] {
            assert!(check_base(name, "snap").is_ok(), "{name}");
        }
        let error = check_base("/images/other", "snap").unwrap_err().to_string();
        assert_eq!(
            error,
            "snapshot backing file 'other' does not match expected checkpoint 'snap', unable to safely rebase snapshot"
        );
    }
}
