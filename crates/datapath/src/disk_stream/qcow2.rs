//! Writes the disk in a source as a qcow2 image.
//!
//! The image takes the place of the disk in a transfer: it is written by [`Writer`], its first MiB,
//! which contains the header, is held back until the commit, and a failure removes the file.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use codec::encode::outgoing::{EncodedStream, SendStats};
use codec::encode::outlet::PieceOutlet;
use codec::encode::qcow2::append_piece;
use codec::encode::{EncodedPiece, Encoding, MAX_FILE_ENCODERS};
use diskimage::Host;
use diskimage::qcow2::{ImageSink, Qcow2Compression, Qcow2Writer};
use stream::error::Error;
use stream::facts::ImageFacts;
use stream::memory;
use stream::meter::MeterReadings;
use stream::observe::{ByteCount, LimitingPart, Observer, Stage, TransferPhase};
use stream::options::{PayloadKind, ReadOptions};
use stream::source::Source;

use super::{StreamedDisk, stream_disk};
use crate::disk::{Disk, DiskOptions, Writer, refuse_source, with_writer};
use crate::options::WriteOptions;
use crate::transfer::TransferReport;

/// Writes the disk in `source` to the new file `target` as a qcow2 image, in one pass. Zeros are
/// not stored. An image that cannot be read in the order of its disk is handled as by
/// [`stream_disk`].
///
/// Returns when the image is complete and synced; the report's `disk_size` is the length of the
/// file. After a failure the file does not exist.
pub fn write_qcow2(
    source: Box<dyn Source>,
    payload: PayloadKind,
    compression: Qcow2Compression,
    target: &DiskOptions,
    reading: &ReadOptions,
    writing: &WriteOptions,
) -> Result<TransferReport, Error> {
    reading.observer.begin_phase(TransferPhase::Info);
    refuse_source(&target.path, &*source)?;
    let mut disk_reader = DiskReader::start(source, payload, compression, reading, writing)?;
    // The image is recognized before its first piece arrives, so a bad image does not replace an
    // existing file.
    let first = disk_reader.next_piece()?;
    reading.observer.begin_phase(TransferPhase::Transfer);
    let disk = Disk::open(target, None)?;
    let readings = MeterReadings::reporting_to(Arc::clone(&disk_reader.observer) as _);
    let (image_bytes, streamed) =
        with_writer(&disk, None, None, writing.workers, &reading.stop, |writer| {
            let expected = disk_reader.observer.facts.get().and_then(|facts| facts.virtual_size);
            let mut image = Qcow2Writer::new(compression, expected, writer)?;
            let mut next = first;
            while let Some(piece) = next {
                reading.check_stop()?;
                append_piece(piece, &mut image, writer)?;
                disk.report_progress(&readings);
                next = disk_reader.next_piece()?;
            }
            let streamed = disk_reader.streamed.get().cloned().ok_or(Error::Stopped)?;
            Ok((image.finish(streamed.virtual_size, writer)?, streamed))
        })?;
    disk.report_progress(&readings);

    reading.observer.begin_phase(TransferPhase::Resize);
    let disk_size = disk.resize(image_bytes, None)?;
    reading.check_stop()?;
    let written_bytes =
        readings.time_stage(Stage::Target, || disk.commit(image_bytes, target.mode))?;
    let skipped_bytes = streamed.virtual_size.saturating_sub(written_bytes);
    reading.observer.record_bytes(ByteCount::Target, written_bytes);
    reading.observer.record_bytes(ByteCount::Skipped, skipped_bytes);
    reading.observer.begin_phase(TransferPhase::Complete);
    Ok(TransferReport {
        facts: streamed.facts,
        virtual_size: streamed.virtual_size,
        disk_size,
        source_bytes: streamed.source_bytes,
        written_bytes,
        checksum: streamed.checksum,
        preallocated: false,
        peak_held_bytes: memory::peak_bytes(),
    })
}

/// Reads and encodes a disk on other threads.
struct DiskReader {
    stream: EncodedStream<Error>,
    stats: Arc<SendStats<Error>>,
    observer: Arc<ReaderObserver>,
    streamed: Arc<OnceLock<StreamedDisk>>,
}

impl DiskReader {
    fn start(
        source: Box<dyn Source>,
        payload: PayloadKind,
        compression: Qcow2Compression,
        reading: &ReadOptions,
        writing: &WriteOptions,
    ) -> Result<Self, Error> {
        let observer = Arc::new(ReaderObserver {
            inner: Arc::clone(&reading.observer),
            facts: OnceLock::new(),
        });
        let limits = Arc::new(LimitObserver(Arc::clone(&reading.observer)));
        let stats = Arc::new(SendStats::with_observer(limits));
        let streamed = Arc::new(OnceLock::new());
        let result = Arc::clone(&streamed);
        let reading = ReadOptions { observer: Arc::clone(&observer) as _, ..reading.clone() };
        let options = writing.clone();
        let read = move |outlet: &mut PieceOutlet<'_>| {
            let disk = stream_disk(&*source, payload, &reading, &options, outlet)?;
            result.get_or_init(|| disk);
            Ok(())
        };
        // Without compression, one thread finds zeros faster than a disk is read.
        let most = if compression == Qcow2Compression::None { 1 } else { MAX_FILE_ENCODERS };
        let encoders = writing.workers.min(NonZeroUsize::MIN.saturating_add(most - 1));
        let encoding = Encoding::Qcow2(compression);
        let stream = EncodedStream::start(read, encoding, encoders, Arc::clone(&stats))?;
        Ok(Self { stream, stats, observer, streamed })
    }

    /// Waits for the next piece. Returns `None` at the verified end of the disk.
    fn next_piece(&mut self) -> Result<Option<EncodedPiece>, Error> {
        match self.stream.wait_for_piece().transpose() {
            Ok(piece) => Ok(piece),
            Err(incomplete) => match self.stats.take_failure() {
                Some(error) => Err(error),
                // One of the threads panicked. The caller reports panics with their cause.
                None => std::panic::resume_unwind(Box::new(incomplete.to_string())),
            },
        }
    }
}

/// Writes the bytes of an image to its file.
impl ImageSink for Writer<'_> {
    type Error = Error;

    fn write_at(&mut self, host: Host, bytes: Bytes) -> Result<(), Error> {
        self.add_data(host.0, bytes)
    }
}

/// The observer of the reading thread. It passes on all events of that thread except what limits
/// the transfer, because the thread that writes the image knows that.
struct ReaderObserver {
    inner: Arc<dyn Observer>,
    /// The facts about the image, once it has been recognized.
    facts: OnceLock<ImageFacts>,
}

impl Observer for ReaderObserver {
    fn record_image(&self, facts: &ImageFacts) {
        self.facts.get_or_init(|| facts.clone());
        self.inner.record_image(facts);
    }

    fn source_position(&self, position: u64, total: Option<u64>) {
        self.inner.source_position(position, total);
    }

    fn record_time(&self, stage: Stage, time: Duration) {
        self.inner.record_time(stage, time);
    }
}

/// The observer of the encoded stream. It passes on only what limits the transfer.
struct LimitObserver(Arc<dyn Observer>);

impl Observer for LimitObserver {
    fn record_limit(&self, part: LimitingPart, time: Duration) {
        self.0.record_limit(part, time);
    }
}
