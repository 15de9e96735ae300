//! From extents to writes: one feeder, several threads that inflate, look for zeros and write.
//!
//! Tried and left out: more threads than CPUs (the disk has enough with one write from each), other allocators
//! (pooling gains as much with less memory), io_uring (default pods refuse it, and direct writes from two threads
//! reach what the disk gives).

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use diskimage::CompressedClusters;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::batch::{BATCH_BYTES, BatchCollector, DiskSegment, SegmentContent, WriteBatch};
use super::coverage::Coverage;
use super::handle::Disk;
use super::inflate::Inflater;
use super::slices::sub_slices;
use super::zeroing::ZeroingFrontier;
use crate::buffer::{AlignedBuffer, PAGE};
use crate::error::{Error, FormatError, TargetError, ThreadStartError};
use crate::marks::HELD_BYTES;
use crate::queue::WorkQueue;
use crate::zeros::{data_runs, is_known_zero};

/// Bytes that may wait for the writing threads, those that they work on included.
const QUEUE_BYTES: usize = 8 << 20;

/// Bytes of clusters that are inflated before they are written together, unless one cluster is more.
const INFLATED_BYTES: usize = 1 << 20;

/// Most writing threads: each has up to a MiB of memory of its own, and the bound of the process is 64 MiB whatever the
/// number of cores.
const MAX_THREADS: usize = 8;

/// State that the writing threads share.
struct WriterState<'d> {
    disk: &'d Disk,
    queue: WorkQueue<WriteBatch>,
    clusters: Option<CompressedClusters>,
    virtual_size: Option<u64>,
    failure: Mutex<Option<Error>>,
}

/// Takes the extents of a disk in any order.
pub struct Writer<'s> {
    shared: &'s WriterState<'s>,
    collector: BatchCollector,
    /// Ranges that were written, on targets that are not zero to begin with.
    coverage: Option<Coverage>,
    frontier: ZeroingFrontier,
    /// Time for which the disk made its feeder wait.
    pub(crate) waited: Duration,
}

/// Runs `feed` with a writer on `disk` whose work is done by `threads` threads; returns when all of it is written.
/// A failure of a thread wins over what it made `feed` fail with. `virtual_size` is `None` if only the end tells.
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
        clusters,
        virtual_size,
        failure: Mutex::new(None),
    };
    let span = Span::current();
    let fed = std::thread::scope(|scope| {
        // However `feed` ends, by a panic too, the threads must not wait for more.
        let _closer = QueueCloseGuard(&shared.queue);
        for number in 0..threads.get().min(MAX_THREADS) {
            let started = std::thread::Builder::new().spawn_scoped(scope, || {
                let _entered = span.enter();
                shared.run_worker();
            });
            match started {
                Ok(_) => {}
                // One writes as well as many, only slower.
                Err(error) if number > 0 => {
                    tracing::debug!(%error, "could not start another thread to write");
                    break;
                }
                Err(error) => return Err(ThreadStartError(error).into()),
            }
        }
        let mut writer = Writer {
            shared: &shared,
            collector: BatchCollector::default(),
            coverage: (!disk.is_zeroed() && !disk.in_place).then(|| Coverage::up_to(disk.kept_end)),
            frontier: ZeroingFrontier::new(disk, virtual_size, stop.clone()),
            waited: Duration::ZERO,
        };
        let fed = feed(&mut writer).and_then(|value| writer.flush().map(|()| (value, writer.coverage)));
        if fed.is_err() {
            shared.queue.abort();
        }
        fed
    });
    if let Some(failure) = shared.failure.into_inner() {
        return Err(failure);
    }
    fed.and_then(|(value, coverage)| {
        // Only now is nothing in flight that could be overtaken.
        if let (Some(coverage), Some(size)) = (coverage, virtual_size) {
            fill_gaps(disk, &coverage, size, stop)?;
        }
        Ok(value)
    })
}

struct QueueCloseGuard<'q>(&'q WorkQueue<WriteBatch>);

impl Drop for QueueCloseGuard<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Zeroes what was not written, beginning behind the held first MiB.
fn fill_gaps(disk: &Disk, coverage: &Coverage, size: u64, stop: &CancellationToken) -> Result<(), Error> {
    for gap in coverage.find_gaps(size) {
        disk.zero_in_steps(gap.start.max(HELD_BYTES)..gap.end, stop)?;
    }
    Ok(())
}

impl Writer<'_> {
    /// The disk below.
    pub fn disk(&self) -> &Disk {
        self.shared.disk
    }

    /// Bytes that belong at `offset`.
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

    /// A compressed cluster that belongs at `offset`.
    pub fn add_compressed(&mut self, offset: u64, bytes: Bytes) -> Result<(), Error> {
        let size = self.shared.clusters.map_or(0, |clusters| clusters.size);
        let end = self.shared.clip_end(offset, size);
        self.prepare_range(offset..end)?;
        if self.collector.add_compressed(offset, bytes, size) {
            self.flush()?;
        }
        Ok(())
    }

    /// Bookkeeping for a range that is about to be written (or used otherwise).
    pub(crate) fn prepare_range(&mut self, range: Range<u64>) -> Result<(), Error> {
        self.zero_until(range.end)?;
        if let Some(coverage) = &mut self.coverage {
            coverage.add_range(range);
            for gap in coverage.close_small_gaps() {
                if gap.end > HELD_BYTES {
                    let began = Instant::now();
                    self.shared.disk.zero_range(gap.start.max(HELD_BYTES)..gap.end)?;
                    self.waited += began.elapsed();
                }
            }
        }
        Ok(())
    }

    /// A device must read as zeros up to here, even if nothing is written.
    pub fn zero_until(&mut self, end: u64) -> Result<(), Error> {
        // Asked for each extent, and true of nearly all: no look at the clock for these.
        if self.frontier.is_past(end) {
            return Ok(());
        }
        let began = Instant::now();
        let zeroed = self.frontier.advance_to(self.shared.disk, end);
        self.waited += began.elapsed();
        zeroed
    }

    /// Hands over what has been collected.
    fn flush(&mut self) -> Result<(), Error> {
        for batch in self.collector.take_batches() {
            let bytes = batch.held_bytes;
            let began = Instant::now();
            let is_taken = self.shared.queue.push(batch, bytes);
            self.waited += began.elapsed();
            // A closed queue means that a thread failed; its error is reported by `with_writer`.
            if !is_taken {
                return Err(Error::Stopped);
            }
        }
        Ok(())
    }
}

impl WriterState<'_> {
    /// Takes batches and writes them, until there are no more: the life of a writing thread.
    fn run_worker(&self) {
        let mut worker = WriteWorker { shared: self, inflater: Inflater::new(), inflated: None };
        while let Some((batch, bytes)) = self.queue.pop() {
            // A panic must not leave the feeder waiting for ever, and must not look like success.
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.write_batch(&batch)));
            drop(batch);
            self.queue.release_bytes(bytes);
            let failure = match result {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error,
                Err(_) => {
                    self.disk.target_error("write", std::io::Error::other("a writing thread panicked")).into()
                }
            };
            self.failure.lock().get_or_insert(failure);
            self.queue.abort();
            return;
        }
    }

    /// The end on the disk of a range of `size` bytes.
    fn clip_end(&self, offset: u64, size: u64) -> u64 {
        (offset + size).min(self.virtual_size.unwrap_or(u64::MAX))
    }
}

/// One writing thread with its memory.
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
                SegmentContent::Compressed(_) => self.write_inflated(first.offset, segments)?,
            };
        }
        Ok(())
    }

    /// Inflates clusters as long as each continues the one before, and writes them together.
    fn write_inflated<'b>(
        &mut self,
        start: u64,
        segments: &'b [DiskSegment],
    ) -> Result<&'b [DiskSegment], Error> {
        let Some(clusters) = self.shared.clusters else {
            return Ok(&[]);
        };
        let size = usize::try_from(clusters.size).unwrap_or(0);
        let buffer = self.inflated.get_or_insert_with(|| AlignedBuffer::new(size.max(INFLATED_BYTES) + PAGE));
        // In memory as on the disk, so that whole pages can be written from where they are.
        let skew = usize::try_from(start % PAGE as u64).unwrap_or(0);
        let mut end = start;
        let mut used = skew;
        let mut rest = segments;
        let began = Instant::now();
        while let Some((DiskSegment { offset, content, .. }, next)) = rest.split_first()
            && let SegmentContent::Compressed(bytes) = content
            && *offset == end
            && (used == skew || used - skew + size <= INFLATED_BYTES)
        {
            let on_disk = self.shared.clip_end(end, clusters.size).saturating_sub(end);
            self.inflater
                .inflate(
                    clusters.compression,
                    bytes,
                    &mut buffer.bytes_mut()[used..used + size],
                    usize::try_from(on_disk).unwrap_or(size),
                )
                .map_err(|reason| {
                    let cluster_size = clusters.size;
                    FormatError::from(diskimage::Error::CompressedCluster {
                        guest: diskimage::Guest(*offset),
                        cluster_size,
                        reason,
                    })
                })?;
            used += size;
            end += clusters.size;
            rest = next;
        }
        self.shared.disk.busy.inflating.add_time(began.elapsed());
        let length = usize::try_from(self.shared.clip_end(start, end - start) - start).unwrap_or(used - skew);
        let inflated = &buffer.as_bytes()[skew..skew + length];
        write_data(self.shared.disk, start, &[inflated])?;
        Ok(rest)
    }
}

/// Writes what is not zero, or everything where zeros count.
fn write_data(disk: &Disk, offset: u64, slices: &[&[u8]]) -> Result<(), TargetError> {
    if !disk.is_zeroed() {
        return disk.write_slices(offset, slices);
    }
    for run in data_runs(offset, slices.iter().copied()) {
        disk.write_slices(offset + run.start as u64, &sub_slices(slices, run))?;
    }
    Ok(())
}
