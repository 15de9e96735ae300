//! From extents to writes: one feeder, several threads that inflate, look for zeros and write.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use diskimage::qcow2::Compression;
use tokio_util::sync::CancellationToken;

use super::batch::{BATCH_BYTES, Batch, Segment};
use super::coverage::Coverage;
use super::disk::{Bounce, Disk};
use super::inflate::Inflater;
use super::queue::Queue;
use super::zero::data_runs;
use super::zeroing::Frontier;
use crate::error::{Error, FormatError, TargetError};

/// Bytes that may wait for the writing threads, those that they work on included.
const QUEUE_BYTES: usize = 6 << 20;

/// Most writing threads: each has up to 2 MiB of memory of its own, and the bound of the process is 64 MiB whatever the
/// number of cores.
const MAX_THREADS: usize = 8;

/// How compressed clusters of the image become data.
#[derive(Debug, Clone, Copy)]
pub struct Clusters {
    /// Their codec.
    pub compression: Compression,
    /// Bytes of each, inflated.
    pub size: u64,
}

/// What the writing threads share.
struct Shared<'d> {
    disk: &'d Disk,
    queue: Queue<Batch>,
    clusters: Option<Clusters>,
    virtual_size: Option<u64>,
    failure: Mutex<Option<Error>>,
}

/// Takes the extents of a disk in any order.
pub struct Writer<'s> {
    shared: &'s Shared<'s>,
    batch: Batch,
    /// What was written, on targets that are not zero to begin with.
    coverage: Option<Coverage>,
    frontier: Frontier,
}

/// Runs `feed` with a writer on `disk` whose work is done by `threads` threads; returns when all of it is written.
/// A failure of a thread wins over what it made `feed` fail with. `virtual_size` is `None` if only the end tells.
pub fn with_writer<T>(
    disk: &Disk,
    clusters: Option<Clusters>,
    virtual_size: Option<u64>,
    threads: NonZeroUsize,
    stop: &CancellationToken,
    feed: impl FnOnce(&mut Writer<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let shared = Shared {
        disk,
        queue: Queue::new(QUEUE_BYTES),
        clusters,
        virtual_size,
        failure: Mutex::new(None),
    };
    let fed = std::thread::scope(|scope| {
        // However `feed` ends, by a panic too, the threads must not wait for more.
        let _closer = Closer(&shared.queue);
        for _ in 0..threads.get().min(MAX_THREADS) {
            scope.spawn(|| shared.work());
        }
        let mut writer = Writer {
            shared: &shared,
            batch: Batch::default(),
            coverage: (!disk.is_zeroed()).then(Coverage::default),
            frontier: Frontier::new(disk, virtual_size, stop.clone()),
        };
        let fed = feed(&mut writer).and_then(|value| writer.flush().map(|()| (value, writer.coverage)));
        if fed.is_err() {
            shared.queue.abort();
        }
        fed
    });
    if let Some(failure) = shared
        .failure
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
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

struct Closer<'q>(&'q Queue<Batch>);

impl Drop for Closer<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Zeroes what nobody wrote, beginning behind the held first MiB.
fn fill_gaps(disk: &Disk, coverage: &Coverage, size: u64, stop: &CancellationToken) -> Result<(), Error> {
    for gap in coverage.gaps(size) {
        let mut at = gap.start.max(super::HELD_BYTES);
        while at < gap.end {
            if stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            let end = gap.end.min(at + (256 << 20));
            disk.zero_range(at..end)?;
            at = end;
        }
    }
    Ok(())
}

impl Writer<'_> {
    /// The disk below.
    pub fn disk(&self) -> &Disk {
        self.shared.disk
    }

    /// Bytes that belong at `offset`.
    pub fn data(&mut self, mut offset: u64, mut bytes: Bytes) -> Result<(), Error> {
        self.prepare(offset..offset + bytes.len() as u64)?;
        while !bytes.is_empty() {
            let to_boundary = BATCH_BYTES - offset % BATCH_BYTES;
            let length = usize::try_from(to_boundary)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let piece = bytes.split_to(length);
            self.batch.add_plain(offset, piece);
            offset += length as u64;
            self.submit_if_full(offset)?;
        }
        Ok(())
    }

    /// A compressed cluster that belongs at `offset`.
    pub fn compressed(&mut self, offset: u64, bytes: Bytes) -> Result<(), Error> {
        let size = self.shared.clusters.map_or(0, |clusters| clusters.size);
        let end = self.shared.clip(offset, size);
        self.prepare(offset..end)?;
        self.batch.add_compressed(offset, bytes, size);
        self.submit_if_full(offset + size)
    }

    /// Bookkeeping for a range that is about to be written (or used otherwise).
    pub(crate) fn prepare(&mut self, range: Range<u64>) -> Result<(), Error> {
        self.frontier.advance(self.shared.disk, range.end)?;
        if let Some(coverage) = &mut self.coverage {
            coverage.add(range);
            for gap in coverage.overflow() {
                if gap.end > super::HELD_BYTES {
                    self.shared
                        .disk
                        .zero_range(gap.start.max(super::HELD_BYTES)..gap.end)?;
                }
            }
        }
        Ok(())
    }

    /// A device must read as zeros up to here, even if nothing is written.
    pub fn zero_until(&mut self, end: u64) -> Result<(), Error> {
        self.frontier.advance(self.shared.disk, end)
    }

    fn submit_if_full(&mut self, end: u64) -> Result<(), Error> {
        if self.batch.is_full(end) {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Hands over what has been collected.
    fn flush(&mut self) -> Result<(), Error> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let bytes = batch.held_bytes;
        // A closed queue means that a thread failed; its error is reported by `with_writer`.
        if self.shared.queue.push(batch, bytes) {
            Ok(())
        } else {
            Err(Error::Stopped)
        }
    }
}

impl Shared<'_> {
    /// What a writing thread does.
    fn work(&self) {
        let mut worker = Worker {
            shared: self,
            inflater: Inflater::new(),
            inflated: Vec::new(),
            bounce: Bounce::default(),
        };
        while let Some((batch, bytes)) = self.queue.pop() {
            // A panic must not leave the feeder waiting for ever, and must not look like success.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.write(&batch)));
            drop(batch);
            self.queue.done(bytes);
            let failure = match result {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error,
                Err(_) => self
                    .disk
                    .error("write", std::io::Error::other("a writing thread panicked"))
                    .into(),
            };
            self.failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(failure);
            self.queue.abort();
            return;
        }
    }

    /// Where a range of `size` bytes ends on the disk.
    fn clip(&self, offset: u64, size: u64) -> u64 {
        (offset + size).min(self.virtual_size.unwrap_or(u64::MAX))
    }
}

/// One writing thread with its memory.
struct Worker<'s> {
    shared: &'s Shared<'s>,
    inflater: Inflater,
    inflated: Vec<u8>,
    bounce: Bounce,
}

impl Worker<'_> {
    fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut segments = &batch.segments[..];
        while let Some((first, rest)) = segments.split_first() {
            segments = match first {
                Segment::Plain { offset, pieces, .. } => {
                    let slices: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
                    write_data(self.shared.disk, *offset, &slices, &mut self.bounce)?;
                    rest
                }
                Segment::Compressed { offset, .. } => self.write_inflated(*offset, segments)?,
            };
        }
        Ok(())
    }

    /// Inflates clusters as long as each continues the one before, and writes them together.
    fn write_inflated<'b>(&mut self, start: u64, segments: &'b [Segment]) -> Result<&'b [Segment], Error> {
        let Some(clusters) = self.shared.clusters else {
            return Ok(&[]);
        };
        let size = usize::try_from(clusters.size).unwrap_or(0);
        let mut end = start;
        let mut used = 0;
        let mut rest = segments;
        while let Some((Segment::Compressed { offset, bytes }, next)) = rest.split_first()
            && *offset == end
            && (used == 0 || used as u64 + clusters.size <= BATCH_BYTES)
        {
            if self.inflated.len() < used + size {
                self.inflated.resize(used + size, 0);
            }
            self.inflater
                .inflate(clusters.compression, bytes, &mut self.inflated[used..used + size])
                .map_err(|reason| {
                    let cluster_size = clusters.size;
                    FormatError::from(diskimage::Error::CompressedCluster {
                        guest: *offset,
                        cluster_size,
                        reason,
                    })
                })?;
            used += size;
            end += clusters.size;
            rest = next;
        }
        let length = usize::try_from(self.shared.clip(start, used as u64) - start).unwrap_or(used);
        write_data(
            self.shared.disk,
            start,
            &[&self.inflated[..length]],
            &mut self.bounce,
        )?;
        Ok(rest)
    }
}

/// Writes what is not zero, or everything where zeros count.
fn write_data(disk: &Disk, offset: u64, slices: &[&[u8]], bounce: &mut Bounce) -> Result<(), TargetError> {
    if !disk.is_zeroed() {
        return disk.write_slices(offset, slices, bounce);
    }
    let mut cut = Vec::with_capacity(slices.len());
    for run in data_runs(offset, slices.iter().copied()) {
        cut.clear();
        sub_slices(slices, run.start, run.length, &mut cut);
        disk.write_slices(offset + run.start, &cut, bounce)?;
    }
    Ok(())
}

/// The part `[start, start + length)` of slices that follow each other.
fn sub_slices<'a>(slices: &[&'a [u8]], start: u64, length: u64, into: &mut Vec<&'a [u8]>) {
    let mut skip = usize::try_from(start).unwrap_or(usize::MAX);
    let mut want = usize::try_from(length).unwrap_or(usize::MAX);
    for slice in slices {
        if skip >= slice.len() {
            skip -= slice.len();
            continue;
        }
        let take = (slice.len() - skip).min(want);
        into.push(&slice[skip..skip + take]);
        skip = 0;
        want -= take;
        if want == 0 {
            break;
        }
    }
}
