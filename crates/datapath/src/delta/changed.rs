//! Applies the changed ranges of a disk, which arrive one after the other.

use std::ops::Range;

use bytes::Bytes;
use codec::input::TransferInput;
use diskimage::Format;
use stream::changes::{ChangedOffsets, ChangedRanges};
use stream::chunks::{ChunkStream, PeekStream};
use stream::error::{Error, SourceError, SourceErrorKind};
use stream::facts::{ImageFacts, RouteTaken};
use stream::meter::Meter;
use stream::observe::TransferPhase;
use stream::options::ReadOptions;
use stream::source::Source;
use stream::zeros::is_zero;

use super::DeltaBase;
use crate::disk::{self, Disk, Writer, with_timed_writer};
use crate::options::WriteOptions;
use crate::transfer::TransferReport;

/// Zeros are detected in blocks of this size. The device would have to write smaller ranges of
/// zeros anyway.
const BLOCK: u64 = 64 << 10;

/// Writes the bytes of `source` to the ranges in `changes`.
pub(super) fn apply_changes(
    source: &dyn Source,
    changes: &ChangedRanges,
    base: &DeltaBase,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<TransferReport, Error> {
    reading.observer.begin_phase(TransferPhase::Info);
    disk::refuse_source(&base.disk.path, source)?;
    // A guest wrote the bytes, so they are not interpreted: a range may begin like an archive.
    let meter = Meter::new(source, reading)?;
    let mut input =
        TransferInput::from_source(PeekStream::new(meter), reading.limits.memory.empty_grant());
    let facts = ImageFacts {
        layers: input.layer_names(),
        format: Format::Raw,
        virtual_size: Some(changes.disk_bytes()),
        route: RouteTaken::OnePass,
        warning: None,
    };
    reading.observer.record_image(&facts);

    reading.observer.begin_phase(TransferPhase::Transfer);
    let disk = super::open_base(base, changes.disk_bytes())?;
    // The disk is never grown here. If the source's disk has grown since, its changes are not
    // enough.
    disk.check_holds(changes.disk_bytes())?;
    write_changes(changes, &mut input, &disk, reading, writing)?;
    for zeros in changes.zero_ranges() {
        disk.time_wait(|| disk.zero_in_steps(zeros.clone(), &reading.stop))?;
    }
    super::finish_delta(facts, changes.disk_bytes(), input, disk, reading)
}

fn write_changes(
    changes: &ChangedRanges,
    input: &mut TransferInput,
    disk: &Disk,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<(), Error> {
    let readings = input.readings();
    let mut places = ChangedOffsets::new(changes);
    with_timed_writer(
        disk,
        None,
        Some(changes.disk_bytes()),
        writing.workers,
        (&reading.stop, &readings),
        |writer| {
            let mut output = DeltaOutput { writer, zeros: 0..0, reading };
            while let Some(mut chunk) = input.next_chunk()? {
                while !chunk.is_empty() {
                    let (offset, bytes) =
                        places.take_front(&mut chunk).ok_or_else(|| length_error(changes))?;
                    output.write_bytes(offset, bytes)?;
                }
                output.writer.disk().report_progress(&readings);
            }
            output.end_zeros()
        },
    )?;
    if places.is_complete() { Ok(()) } else { Err(length_error(changes)) }
}

/// The error for a source that delivered a different number of bytes than it announced.
fn length_error(changes: &ChangedRanges) -> Error {
    let message =
        format!("the source does not have the {} bytes that changed", changes.changed_bytes());
    SourceError::new(SourceErrorKind::Length, message).into()
}

/// Writes data to the disk and turns zeros into holes. The two never overlap, so their order does
/// not matter.
struct DeltaOutput<'w, 's> {
    writer: &'w mut Writer<'s>,
    /// The last range of zeros, which is not applied to the disk yet.
    zeros: Range<u64>,
    reading: &'w ReadOptions,
}

impl DeltaOutput<'_, '_> {
    fn write_bytes(&mut self, mut offset: u64, mut bytes: Bytes) -> Result<(), Error> {
        while !bytes.is_empty() {
            let length = usize::try_from(BLOCK - offset % BLOCK).unwrap_or(usize::MAX);
            let block = bytes.split_to(length.min(bytes.len()));
            let end = offset + block.len() as u64;
            if is_zero(&block) {
                self.add_zeros(offset..end)?;
            } else {
                self.writer.add_data(offset, block)?;
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
        let disk = self.writer.disk();
        disk.time_wait(|| disk.zero_in_steps(zeros, &self.reading.stop))
    }
}
