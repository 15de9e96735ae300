//! The function that connects all stages of a transfer.

use codec::decode;
use codec::input::TransferInput;
use stream::error::{Error, SourceError, SourceErrorKind};
use stream::facts::ImageFacts;
use stream::memory;
use stream::meter::Meter;
use stream::observe::{ByteCount, Stage, TransferPhase};
use stream::options::{PayloadKind, ReadOptions};
use stream::source::Source;

use crate::disk::{self, Disk, Writer, with_timed_writer};
use crate::format::PreparedImage;
use crate::format::raw::CopiedDisk;
use crate::options::WriteOptions;

/// Results of a finished transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferReport {
    /// Facts about the image.
    pub facts: ImageFacts,
    /// Size of the virtual disk in bytes.
    pub virtual_size: u64,
    /// Size of the target in bytes. Larger than the virtual size if the target was grown.
    pub disk_size: u64,
    /// Source bytes that were read or, on the ranged route, skipped.
    pub source_bytes: u64,
    /// Bytes written to the target.
    pub written_bytes: u64,
    /// The digest of the whole object, if one was requested.
    pub checksum: Option<String>,
    /// True if every block of the target is allocated.
    pub preallocated: bool,
    /// Maximum memory that data took at once since the process began; see [`memory`].
    pub peak_held_bytes: usize,
}

/// Copies the image in `source` to the target. `payload` specifies the kind of content in the
/// source. Returns when the disk is complete, verified and synced. After a failure the target does
/// not look like a complete disk.
pub fn transfer_image(
    source: &dyn Source,
    payload: PayloadKind,
    target: &disk::DiskOptions,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<TransferReport, Error> {
    refuse_changes(source)?;
    let (payload, reading) = reading.for_payload(payload, source);
    let reading = &reading;
    reading.observer.begin_phase(TransferPhase::Info);
    disk::refuse_source(&target.path, source)?;

    // Source, meter, digest. The meter comes first: it counts source bytes, it computes the digest
    // over the object as published (before any layer is decoded), and it notices a request to stop
    // wherever the reader waits for bytes.
    let meter = Meter::new(source, reading)?;

    // Peek and decode: the first bytes decide, not a name or an HTTP header. This comes before the
    // archive stage, because archives are compressed as a whole.
    let input = decode::decode_input(meter, reading, &writing.decode_limits(&reading.limits))?;

    // Tar and OVA: the file inside is a stream like any other. In the facts the archive appears as
    // a layer.
    let mut input = tar::open_payload(input, payload, reading)?;

    // Format: the head, and the map if the source supports ranges. This comes before the target is
    // opened, because the target must know the size, and because a bad image must not destroy the
    // existing content.
    let image = PreparedImage::open(source, &mut input, payload, reading, writing.route)?;
    write_disk(image, input, target, reading, writing)
}

/// Writes `image`, which is ready to be copied, to the target: the second half of a transfer.
pub(crate) fn write_disk(
    image: PreparedImage,
    mut input: TransferInput,
    target: &disk::DiskOptions,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<TransferReport, Error> {
    let readings = input.readings();
    let mut facts = image.image_facts(&input);
    let kept_bytes = writing.kept.as_ref().map_or(0, |kept| kept.kept_bytes());
    facts.virtual_size = facts.virtual_size.map(|size| size.saturating_add(kept_bytes));
    reading.observer.record_image(&facts);

    // Target: from here on data is written.
    reading.observer.begin_phase(TransferPhase::Transfer);
    let disk = match &writing.kept {
        Some(kept) => Disk::open_behind(target, kept)?,
        None => Disk::open(target, facts.virtual_size)?,
    };
    let tick = |writer: &Writer<'_>| writer.disk().report_progress(&readings);
    let copied = with_timed_writer(
        &disk,
        image.compressed_clusters(),
        facts.virtual_size,
        writing.workers,
        (&reading.stop, &readings),
        |writer| image.copy_to_disk(&mut input, writer, reading, writing, tick),
    )
    .map_err(|error| disk.explain_full(error))?;
    // The format is certain only now, because a footer may follow a raw image.
    let CopiedDisk { virtual_size, format } = copied;
    facts.format = format;
    reading.check_disk_size(virtual_size)?;

    // Drain and verify: after the copy, because only the end of the stream proves its beginning;
    // and before the disk grows, because growing may take long and would be wasted on bad data.
    let checksum = input.finish_reading()?;
    let source_bytes = readings.position();

    reading.observer.begin_phase(TransferPhase::Resize);
    let disk_size = readings
        .time_stage(Stage::Target, || disk.resize(virtual_size, target.size))
        .map_err(|error| disk.explain_full(error))?;

    // Commit: writing the first MiB, which was held back, makes the disk complete.
    reading.check_stop()?;
    let written_bytes =
        readings.time_stage(Stage::Target, || disk.commit(virtual_size, target.mode))?;
    let skipped_bytes = disk_size.saturating_sub(written_bytes.saturating_add(kept_bytes));
    reading.observer.record_bytes(ByteCount::Target, written_bytes);
    reading.observer.record_bytes(ByteCount::Skipped, skipped_bytes);
    reading.observer.begin_phase(TransferPhase::Complete);
    Ok(TransferReport {
        facts,
        virtual_size,
        disk_size,
        source_bytes,
        written_bytes,
        checksum,
        preallocated: target.preallocate,
        peak_held_bytes: memory::peak_bytes(),
    })
}

/// Fails if the source delivers only what changed since an earlier state.
pub(crate) fn refuse_changes(source: &dyn Source) -> Result<(), SourceError> {
    if source.changed_ranges().is_none() {
        return Ok(());
    }
    let message = "a list of changes is not a disk: apply it to the disk of the earlier checkpoint";
    Err(SourceError::new(SourceErrorKind::Invalid, message))
}
