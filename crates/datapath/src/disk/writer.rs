//! Turns extents into writes: one feeder, and several threads that inflate, detect zeros and
//! write.
//!
//! The following was tried and rejected: more threads than CPUs (one write from each is enough for
//! the disk), other allocators (pooling gains as much with less memory), and io_uring (default
//! pods forbid it, and direct writes from two threads reach the speed of the disk).

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use codec::inflate::{Inflater, compression_error};
use diskimage::{CompressedClusters, Guest};
use parking_lot::Mutex;
use stream::buffer::{AlignedBuffer, PAGE};
use stream::error::{Error, TargetError, ThreadStartError};
use stream::marks::HELD_BYTES;
use stream::meter::MeterReadings;
use stream::observe::Stage;
use stream::queue::WorkQueue;
use stream::zeros::{data_runs, is_known_zero};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::batch::{BATCH_BYTES, BatchCollector, DiskSegment, SegmentContent, WriteBatch};
use super::coverage::Coverage;
use super::handle::Disk;
use super::slices::sub_slices;
use super::zeroing::ZeroingFrontier;

/// Maximum number of bytes that wait for the writing threads, including those being written.
const QUEUE_BYTES: usize = 8 << 20;

/// Bytes of clusters that are inflated before they are written together. A larger cluster is
/// written alone.
const INFLATED_BYTES: usize = 1 << 20;

/// Maximum number of writing threads. Each uses up to 1 MiB of memory, and the process must stay
/// below 64 MiB whatever the number of cores.
const MAX_THREADS: usize = 8;

/// State shared by the writing threads.
struct WriterState<'d> {
    disk: &'d Disk,
    queue: WorkQueue<WriteBatch>,
    virtual_size: Option<u64>,
    failure: Mutex<Option<Error>>,
}

/// Takes the extents of a disk, in any order.
pub struct Writer<'s> {
    shared: &'s WriterState<'s>,
    /// How the next compressed clusters are compressed. The images of a chain may differ.
    pub(crate) clusters: Option<CompressedClusters>,
    collector: BatchCollector,
    /// Ranges that were written, for targets that do not read as zeros. `None` for others.
    coverage: Option<Coverage>,
    frontier: ZeroingFrontier,
}

/// Runs `feed` with a writer for `disk` whose work is done by `threads` threads. Returns when
/// everything is written. If a thread fails, its error is returned instead of the error that it
/// caused in `feed`. `virtual_size` is `None` if the size is known only at the end.
pub fn with_writer<T>(
    disk: &Disk,
    clusters: Option<CompressedClusters>,
    virtual_size: Option<u64>,
    threads: NonZeroUsize,
    stop: &CancellationToken,
    feed: impl FnOnce(&mut Writer<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let shared = WriterState {
        disk,
        queue: WorkQueue::new(QUEUE_BYTES),
        virtual_size,
        failure: Mutex::new(None),
    };
    let span = Span::current();
    let mut fed_at = None;
    let fed = std::thread::scope(|scope| {
        // Close the queue however `feed` ends, even by a panic. The threads would otherwise wait
        // forever.
        let _closer = QueueCloseGuard(&shared.queue);
        for number in 0..threads.get().min(MAX_THREADS) {
            let started = std::thread::Builder::new().spawn_scoped(scope, || {
                let _entered = span.enter();
                shared.run_worker();
            });
            match started {
                Ok(_) => {}
                // Fewer threads can do the same work, only more slowly.
                Err(error) if number > 0 => {
                    tracing::debug!(%error, "could not start another thread to write");
                    break;
                }
                Err(error) => return Err(ThreadStartError(error).into()),
            }
        }
        let mut writer = Writer {
            shared: &shared,
            clusters,
            collector: BatchCollector::default(),
            // If a disk is changed in place, ranges that are not written keep their content, so
            // the gaps are not filled.
            coverage: (!disk.is_zeroed() && !disk.in_place).then(|| Coverage::up_to(disk.kept_end)),
            frontier: ZeroingFrontier::new(disk, virtual_size, stop.clone()),
        };
        let fed =
            feed(&mut writer).and_then(|value| writer.flush().map(|()| (value, writer.coverage)));
        if fed.is_err() {
            // Drop the waiting batches: without a commit, the disk counts as incomplete.
            shared.queue.abort();
        }
        fed_at = Some(Instant::now());
        fed
    });
    disk.add_wait(fed_at.map_or(Duration::ZERO, |fed_at| fed_at.elapsed()));
    if let Some(failure) = shared.failure.into_inner() {
        return Err(failure);
    }
    fed.and_then(|(value, coverage)| {
        // Only now are all writes complete, so the zeros cannot overtake any of them.
        if let (Some(coverage), Some(size)) = (coverage, virtual_size) {
            disk.time_wait(|| fill_gaps(disk, &coverage, size, stop))?;
        }
        Ok(value)
    })
}

/// Runs `feed` like [`with_writer`] and reports its time, and the time until everything is written,
/// to the observer of `readings`.
pub(crate) fn with_timed_writer<T>(
    disk: &Disk,
    clusters: Option<CompressedClusters>,
    virtual_size: Option<u64>,
    threads: NonZeroUsize,
    (stop, readings): (&CancellationToken, &MeterReadings),
    feed: impl FnOnce(&mut Writer<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let written = with_writer(disk, clusters, virtual_size, threads, stop, |writer| {
        readings.time_stage(Stage::Format, || {
            let fed = feed(writer);
            disk.report_progress(readings);
            fed
        })
    });
    disk.report_progress(readings);
    written
}

struct QueueCloseGuard<'q>(&'q WorkQueue<WriteBatch>);

impl Drop for QueueCloseGuard<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Zeroes everything that was not written, except for the held first MiB.
fn fill_gaps(
    disk: &Disk,
    coverage: &Coverage,
    size: u64,
    stop: &CancellationToken,
) -> Result<(), Error> {
    for gap in coverage.find_gaps(size) {
        disk.zero_in_steps(gap.start.max(HELD_BYTES)..gap.end, stop)?;
    }
    Ok(())
}

impl Writer<'_> {
    /// The disk that is written.
    pub(crate) fn disk(&self) -> &Disk {
        self.shared.disk
    }

    /// Writes `bytes` at `offset` of the disk.
    pub fn add_data(&mut self, mut offset: u64, mut bytes: Bytes) -> Result<(), Error> {
        self.prepare_range(offset..offset + bytes.len() as u64)?;
        if is_known_zero(&bytes) && self.disk().is_zeroed() {
            return Ok(());
        }
        while !bytes.is_empty() {
            let to_boundary = BATCH_BYTES - offset % BATCH_BYTES;
            let length = usize::try_from(to_boundary).unwrap_or(usize::MAX).min(bytes.len());
            if self.collector.add_plain(offset, bytes.split_to(length)) {
                self.flush()?;
            }
            offset += length as u64;
        }
        Ok(())
    }

    /// Writes a compressed cluster at `offset` of the disk.
    pub fn add_compressed(&mut self, offset: u64, bytes: Bytes) -> Result<(), Error> {
        let clusters = self.clusters.ok_or_else(|| compression_error(Guest(offset)))?;
        let end = self.shared.clip_end(offset, clusters.size);
        self.prepare_range(offset..end)?;
        if self.collector.add_compressed(offset, bytes, clusters) {
            self.flush()?;
        }
        Ok(())
    }

    /// Prepares a range that is about to be written or used in another way.
    pub(crate) fn prepare_range(&mut self, range: Range<u64>) -> Result<(), Error> {
        self.zero_until(range.end)?;
        if let Some(coverage) = &mut self.coverage {
            coverage.add_range(range);
            for gap in coverage.close_small_gaps() {
                if gap.end > HELD_BYTES {
                    let disk = self.shared.disk;
                    disk.time_wait(|| disk.zero_range(gap.start.max(HELD_BYTES)..gap.end))?;
                }
            }
        }
        Ok(())
    }

    /// Makes sure that a device reads as zeros up to `end`, even if nothing is written there.
    pub fn zero_until(&mut self, end: u64) -> Result<(), Error> {
        // This is called for each extent, and there is nearly always nothing to do, so not even
        // the clock is read.
        if self.frontier.is_past(end) {
            return Ok(());
        }
        let disk = self.shared.disk;
        disk.time_wait(|| self.frontier.advance_to(disk, end))
    }

    /// Hands the collected segments to the writing threads.
    fn flush(&mut self) -> Result<(), Error> {
        for batch in self.collector.take_batches() {
            let bytes = batch.held_bytes;
            let is_taken = self.shared.disk.time_wait(|| self.shared.queue.push(batch, bytes));
            // A closed queue means that a thread has failed. `with_writer` reports its error.
            if !is_taken {
                return Err(Error::Stopped);
            }
        }
        Ok(())
    }
}

impl WriterState<'_> {
    /// The loop of a writing thread: takes batches and writes them until the queue is closed.
    fn run_worker(&self) {
        let mut worker =
            WriteWorker { shared: self, inflater: Inflater::default(), inflated: None };
        while let Some((batch, bytes)) = self.queue.pop() {
            // Catch panics: a panic must neither leave the feeder waiting forever nor look like
            // success.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                worker.write_batch(&batch)
            }));
            drop(batch);
            // Release the bytes after the batch is dropped, because the feeder fills this room at
            // once.
            self.queue.release_bytes(bytes);
            let failure = match result {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error,
                Err(_) => self
                    .disk
                    .target_error("write", std::io::Error::other("a writing thread panicked"))
                    .into(),
            };
            // Keep the first failure, because later ones are often its consequences.
            self.failure.lock().get_or_insert(failure);
            self.queue.abort();
            return;
        }
    }

    /// End of a range of `size` bytes, clipped to the end of the disk.
    fn clip_end(&self, offset: u64, size: u64) -> u64 {
        (offset + size).min(self.virtual_size.unwrap_or(u64::MAX))
    }
}

/// The state of one writing thread.
struct WriteWorker<'s> {
    shared: &'s WriterState<'s>,
    inflater: Inflater,
    inflated: Option<AlignedBuffer>,
}

impl WriteWorker<'_> {
    fn write_batch(&mut self, batch: &WriteBatch) -> Result<(), Error> {
        let mut segments = &batch.segments[..];
        while let Some((first, rest)) = segments.split_first() {
            segments = match &first.content {
                SegmentContent::Plain(pieces) => {
                    let slices: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
                    write_data(self.shared.disk, first.offset, &slices)?;
                    rest
                }
                SegmentContent::Compressed(_, clusters) => {
                    self.write_inflated(first.offset, *clusters, segments)?
                }
            };
        }
        Ok(())
    }

    /// Inflates clusters that follow each other on the disk and writes them together. Returns the
    /// segments that are left.
    fn write_inflated<'b>(
        &mut self,
        start: u64,
        clusters: CompressedClusters,
        segments: &'b [DiskSegment],
    ) -> Result<&'b [DiskSegment], Error> {
        let size = usize::try_from(clusters.size).unwrap_or(0);
        let needed = size.max(INFLATED_BYTES) + PAGE;
        let buffer = match &mut self.inflated {
            Some(buffer) if buffer.as_bytes().len() >= needed => buffer,
            slot => slot.insert(AlignedBuffer::new(needed)),
        };
        // Place the bytes at the same offset within a page as on the disk, so that whole pages can
        // be written without a copy.
        let skew = usize::try_from(start % PAGE as u64).unwrap_or(0);
        let mut end = start;
        let mut used = skew;
        let mut rest = segments;
        let began = Instant::now();
        while let Some((DiskSegment { offset, content, .. }, next)) = rest.split_first()
            && let SegmentContent::Compressed(bytes, own) = content
            && (*offset, *own) == (end, clusters)
            && (used == skew || used - skew + size <= INFLATED_BYTES)
        {
            let on_disk = self.shared.clip_end(end, clusters.size).saturating_sub(end);
            self.inflater.inflate_cluster(
                clusters,
                Guest(*offset),
                bytes,
                &mut buffer.bytes_mut()[used..used + size],
                usize::try_from(on_disk).unwrap_or(size),
            )?;
            used += size;
            end += clusters.size;
            rest = next;
        }
        self.shared.disk.busy.inflating.add_time(began.elapsed());
        let length = usize::try_from(self.shared.clip_end(start, end - start) - start)
            .unwrap_or(used - skew);
        let inflated = &buffer.as_bytes()[skew..skew + length];
        write_data(self.shared.disk, start, &[inflated])?;
        Ok(rest)
    }
}

/// Writes the data. Skips zeros if the disk reads as zeros already.
fn write_data(disk: &Disk, offset: u64, slices: &[&[u8]]) -> Result<(), TargetError> {
    if !disk.is_zeroed() {
        return disk.write_slices(offset, slices);
    }
    for run in data_runs(offset, slices.iter().copied()) {
        disk.write_slices(offset + run.start as u64, &sub_slices(slices, run))?;
    }
    Ok(())
}
