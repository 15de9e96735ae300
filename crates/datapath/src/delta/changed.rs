//! Ranges of a disk that changed, one after the other.

use std::ops::Range;

use bytes::Bytes;
use diskimage::Format;

use super::{Base, Report};
use crate::changes::{Changes, Places};
use crate::chunks::{Chunks, Peek};
use crate::disk::{self, Disk, Writer, with_writer};
use crate::error::{Error, SourceError, SourceErrorKind};
use crate::facts::{ImageFacts, RouteTaken};
use crate::input::Input;
use crate::meter::Meter;
use crate::observe::{Phase, Stage};
use crate::options::{Reading, Writing};
use crate::source::Source;
use crate::zeros::is_zero;

/// Zeros are looked for in units of this: smaller holes would be written anyway, as they are no whole unit of a device.
const BLOCK: u64 = 64 << 10;

/// Writes the bytes of `source`, which are those of `changes`, to their places.
pub(super) fn apply(
    source: &dyn Source,
    changes: &Changes,
    base: &Base,
    reading: &Reading,
    writing: &Writing,
) -> Result<Report, Error> {
    reading.observer.phase(Phase::Info);
    disk::refuse_source(&base.path, source)?;
    // A guest has written them, so they are never looked at: a range may begin like an archive.
    let meter = Meter::new(source, reading)?;
    let mut input = Input::direct(Peek::new(meter), reading.limits.memory.grant());
    let facts = ImageFacts {
        layers: input.layers(),
        format: Format::Raw,
        virtual_size: Some(changes.disk_bytes()),
        route: RouteTaken::OnePass,
    };
    reading.observer.image(&facts);

    reading.observer.phase(Phase::Transfer);
    let disk = Disk::open_in_place(&base.target_options(), changes.disk_bytes())?;
    // It never grows here: a disk that is larger at the source than it was has more to tell than its changes.
    disk.check_holds(changes.disk_bytes())?;
    write(changes, &mut input, &disk, reading, writing)?;
    let checksum = input.finish()?;
    reading.check_stop()?;
    disk.tell(&*reading.observer);
    let written_bytes = input.readings().time(Stage::Target, || disk.commit_in_place())?;
    reading.observer.target_written(written_bytes);
    reading.observer.phase(Phase::Complete);
    Ok(Report {
        facts,
        virtual_size: changes.disk_bytes(),
        source_bytes: input.readings().position(),
        written_bytes,
        checksum,
    })
}

fn write(
    changes: &Changes,
    input: &mut Input,
    disk: &Disk,
    reading: &Reading,
    writing: &Writing,
) -> Result<(), Error> {
    let readings = input.readings();
    let mut places = Places::new(changes);
    with_writer(
        disk,
        None,
        Some(changes.disk_bytes()),
        writing.workers,
        &reading.stop,
        |writer| {
            readings.time(Stage::Format, || {
                let mut output = Output {
                    writer,
                    zeros: 0..0,
                    reading,
                };
                while let Some(mut chunk) = input.next_chunk()? {
                    while !chunk.is_empty() {
                        let (offset, bytes) = places.take(&mut chunk).ok_or_else(|| beside(changes))?;
                        output.put(offset, bytes)?;
                    }
                    output.writer.disk().tell(&*reading.observer);
                }
                output.end_zeros()?;
                readings.pass_over(output.writer.waited);
                Ok(())
            })
        },
    )?;
    if places.is_complete() {
        Ok(())
    } else {
        Err(beside(changes))
    }
}

/// The source gave another number of bytes than it has announced.
fn beside(changes: &Changes) -> Error {
    let message = format!(
        "the source does not have the {} bytes that changed",
        changes.bytes()
    );
    SourceError::new(SourceErrorKind::Length, message).into()
}

/// The disk: data is written, zeros become holes. The two never overlap, so it does not matter which is first.
struct Output<'w, 's> {
    writer: &'w mut Writer<'s>,
    /// Zeros that came last, and are not yet made.
    zeros: Range<u64>,
    reading: &'w Reading,
}

impl Output<'_, '_> {
    fn put(&mut self, mut offset: u64, mut bytes: Bytes) -> Result<(), Error> {
        while !bytes.is_empty() {
            let length = usize::try_from(BLOCK - offset % BLOCK).unwrap_or(usize::MAX);
            let block = bytes.split_to(length.min(bytes.len()));
            let end = offset + block.len() as u64;
            if is_zero(&block) {
                self.add_zeros(offset..end)?;
            } else {
                self.writer.data(offset, block)?;
            }
            offset = end;
        }
        Ok(())
    }

    fn add_zeros(&mut self, range: Range<u64>) -> Result<(), Error> {
        if self.zeros.end != range.start {
            self.end_zeros()?;
            self.zeros.start = range.start;
        }
        self.zeros.end = range.end;
        Ok(())
    }

    fn end_zeros(&mut self) -> Result<(), Error> {
        let zeros = std::mem::replace(&mut self.zeros, 0..0);
        self.writer.disk().zero_in_steps(zeros, &self.reading.stop)
    }
}
