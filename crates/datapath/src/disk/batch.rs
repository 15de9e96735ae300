//! Units of work for the writing threads: a MiB or two of the disk.

use std::ops::Range;

use bytes::Bytes;

use crate::buffer::{CHUNK_BYTES, SMALL_BYTES};
use crate::pack::Packed;

/// Disk bytes of a unit of work. 1.4 GB in writes of 1, 2, 4 MiB out of huge pages took 0.78, 0.70, 0.68 s.
pub(super) const BATCH_BYTES: u64 = 2 << 20;
/// The same of compressed clusters: enough of them for all threads.
const COMPRESSED_BATCH_BYTES: u64 = 1 << 20;
/// Disk bytes of compressed clusters that are put in order before they are handed out. Writers with several threads
/// (`qemu-img convert -c -W`) leave neighbours some clusters apart, and each gap would be a write of its own.
const WINDOW_BYTES: u64 = 4 << 20;
/// Pieces that are collected: bounds the work when an image is all tiny clusters in random order.
const MAX_PIECES: usize = 4096;
/// Memory that is collected.
const MAX_HELD_BYTES: usize = 3 << 20;

/// A part of the disk.
pub(super) struct Segment {
    /// Offset on the disk.
    pub(super) offset: u64,
    /// Bytes on the disk.
    length: u64,
    /// Bytes of memory that it holds on to.
    held: usize,
    pub(super) content: Content,
}

impl Segment {
    /// Disk bytes of the batch that it may end.
    fn batch_bytes(&self) -> u64 {
        match self.content {
            Content::Plain(_) => BATCH_BYTES,
            Content::Compressed(_) => COMPRESSED_BATCH_BYTES,
        }
    }
}

/// Bytes that become a part of the disk.
pub(super) enum Content {
    /// Bytes as they are, in pieces that follow each other.
    Plain(Vec<Bytes>),
    /// A compressed cluster.
    Compressed(Bytes),
}

/// Segments that one thread handles in one go.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) segments: Vec<Segment>,
    /// Bytes of memory that the batch holds on to.
    pub(super) held_bytes: usize,
    disk_bytes: u64,
}

impl Batch {
    fn add(&mut self, segment: Segment) {
        self.held_bytes += segment.held;
        self.disk_bytes += segment.length;
        self.segments.push(segment);
    }
}

/// Segments on their way into batches.
#[derive(Default)]
pub(super) struct Collector {
    segments: Vec<Segment>,
    pins: Pins,
    held_bytes: usize,
    disk_bytes: u64,
    pieces: usize,
}

impl Collector {
    /// Adds bytes that do not cross a multiple of [`BATCH_BYTES`] on the disk, joining them to the last segment if
    /// they continue it. True when it is time to hand out what was collected, which is at multiples of the batch size, so
    /// that writes stay aligned.
    pub(super) fn add_plain(&mut self, offset: u64, bytes: Bytes) -> bool {
        let length = bytes.len() as u64;
        let end = offset + length;
        let Packed { bytes, held } = self.pins.pin(bytes);
        self.count(length, held);
        // One segment is one write: neighbours are joined.
        match self.segments.last_mut() {
            Some(Segment {
                offset: start,
                length: before,
                held: held_before,
                content: Content::Plain(pieces),
            }) if *start + *before == offset => {
                *before += length;
                *held_before += held;
                pieces.push(bytes);
            }
            _ => self.segments.push(Segment {
                offset,
                length,
                held,
                content: Content::Plain(vec![bytes]),
            }),
        }
        end.is_multiple_of(BATCH_BYTES) || self.disk_bytes >= BATCH_BYTES || self.is_full()
    }

    /// Adds a compressed cluster that becomes `length` bytes. True when it is time to hand out what was collected.
    pub(super) fn add_compressed(&mut self, offset: u64, bytes: Bytes, length: u64) -> bool {
        let Packed { bytes, held } = self.pins.pin(bytes);
        self.count(length, held);
        self.segments.push(Segment {
            offset,
            length,
            held,
            content: Content::Compressed(bytes),
        });
        self.disk_bytes >= WINDOW_BYTES || self.is_full()
    }

    fn count(&mut self, disk_bytes: u64, held_bytes: usize) {
        self.disk_bytes += disk_bytes;
        self.held_bytes += held_bytes;
        self.pieces += 1;
    }

    fn is_full(&self) -> bool {
        self.pieces >= MAX_PIECES || self.held_bytes >= MAX_HELD_BYTES
    }

    /// Hands out the segments that were collected, in the order of the disk, in batches.
    pub(super) fn take(&mut self) -> Vec<Batch> {
        self.pins.begin_again();
        (self.held_bytes, self.disk_bytes, self.pieces) = (0, 0, 0);
        let mut segments = std::mem::take(&mut self.segments);
        segments.sort_by_key(|segment| segment.offset);
        let mut batches = Vec::new();
        let mut batch = Batch::default();
        for segment in segments {
            if batch.disk_bytes > 0 && batch.disk_bytes + segment.length > segment.batch_bytes() {
                batches.push(std::mem::take(&mut batch));
            }
            batch.add(segment);
        }
        if !batch.segments.is_empty() {
            batches.push(batch);
        }
        batches
    }
}

/// Counts what pieces really hold: a few bytes of a chunk keep the whole chunk.
#[derive(Default)]
struct Pins {
    /// Addresses of the last piece, as it came.
    last: Range<usize>,
    /// The batch holds the chunk that the last piece is a part of.
    pinned: bool,
}

impl Pins {
    /// Returns `bytes` for the current batch, with the memory that they keep; small lonely ones are copied.
    fn pin(&mut self, bytes: Bytes) -> Packed {
        let (start, length) = (bytes.as_ptr().addr(), bytes.len());
        // The chunk that follows in memory is another one.
        let is_next = start == self.last.end && !start.is_multiple_of(CHUNK_BYTES);
        let continues = self.last.contains(&start) || is_next;
        self.last = start..start + length;
        if continues && self.pinned {
            return Packed { bytes, held: length };
        }
        self.pinned = continues || length >= SMALL_BYTES;
        if self.pinned {
            let held = length.max(CHUNK_BYTES);
            Packed { bytes, held }
        } else {
            Packed {
                bytes: Bytes::copy_from_slice(&bytes),
                held: length,
            }
        }
    }

    /// Forgets the pinned chunk, which is handed out: the next piece pins its chunk anew.
    fn begin_again(&mut self) {
        self.pinned = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_chunk_hold_it_once() {
        let chunk = Bytes::from(vec![1; CHUNK_BYTES]);
        let mut pins = Pins::default();
        let quarter = |n: usize| chunk.slice(n * SMALL_BYTES..(n + 1) * SMALL_BYTES);
        assert_eq!(pins.pin(quarter(0)).held, CHUNK_BYTES);
        assert_eq!(pins.pin(quarter(1)).held, SMALL_BYTES);
        pins.begin_again();
        assert_eq!(pins.pin(quarter(2)).held, CHUNK_BYTES);
    }

    #[test]
    fn a_piece_of_the_next_chunk_in_memory_holds_another() {
        // The pool's chunks are neighbours: they begin at multiples of their length.
        let memory = Bytes::from(vec![1; 3 * CHUNK_BYTES]);
        let chunk = memory.slice(memory.as_ptr().align_offset(CHUNK_BYTES)..);
        let mut pins = Pins::default();
        assert_eq!(pins.pin(chunk.slice(..CHUNK_BYTES)).held, CHUNK_BYTES);
        let next = CHUNK_BYTES..CHUNK_BYTES + SMALL_BYTES;
        assert_eq!(pins.pin(chunk.slice(next.clone())).held, CHUNK_BYTES);
        assert_eq!(pins.pin(chunk.slice(next.end..next.end + 100)).held, 100);
    }

    #[test]
    fn compressed_clusters_are_handed_out_in_order() {
        let mut collector = Collector::default();
        let size = 64 << 10;
        // 4 MiB in pairs that are the wrong way round.
        for cluster in 0..64u64 {
            let full = collector.add_compressed((cluster ^ 1) * size, Bytes::from_static(b"zip"), size);
            assert_eq!(full, cluster == 63);
        }
        let batches = collector.take();
        let offsets = batches
            .iter()
            .flat_map(|batch| &batch.segments)
            .map(|segment| segment.offset);
        assert!(offsets.eq((0..64).map(|cluster| cluster * size)));
        assert!(
            batches
                .iter()
                .all(|batch| batch.disk_bytes == COMPRESSED_BATCH_BYTES)
        );
        assert!(collector.take().is_empty());
    }

    #[test]
    fn plain_bytes_are_handed_out_at_multiples_of_the_batch_size() {
        let mut collector = Collector::default();
        let half = usize::try_from(BATCH_BYTES / 2).unwrap();
        assert!(!collector.add_plain(7 * BATCH_BYTES, Bytes::from(vec![1; half])));
        assert!(collector.add_plain(7 * BATCH_BYTES + BATCH_BYTES / 2, Bytes::from(vec![1; half])));
        let [batch] = &collector.take()[..] else {
            panic!("one batch")
        };
        let [segment] = &batch.segments[..] else {
            panic!("one segment")
        };
        assert_eq!(segment.length, BATCH_BYTES);
        assert_eq!(batch.held_bytes, 2 * half);
    }

    #[test]
    fn a_lonely_small_piece_lets_go_of_its_chunk() {
        let chunk = Bytes::from(vec![1; CHUNK_BYTES]);
        let mut pins = Pins::default();
        let lonely = pins.pin(chunk.slice(1000..1100));
        assert_eq!(lonely.held, 100);
        let end = pins.pin(chunk.slice(CHUNK_BYTES - 10..));
        assert_eq!(end.held, 10);
        assert_eq!((lonely.bytes.len(), end.bytes.len()), (100, 10));
        // No other handle is left.
        assert!(chunk.is_unique());
    }
}
