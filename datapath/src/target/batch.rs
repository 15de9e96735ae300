//! Units of work for the writing threads: about a MiB of the disk.

use bytes::Bytes;

/// Disk bytes of a batch. Larger writes gained nothing in measurements; smaller ones cost system calls.
pub(super) const BATCH_BYTES: u64 = 1 << 20;
/// Pieces of a batch: bounds the work when an image is all tiny clusters in random order.
const BATCH_PIECES: usize = 4096;

/// A part of the disk.
pub(super) enum Segment {
    /// Bytes as they are, in pieces that follow each other.
    Plain {
        /// Where on the disk.
        offset: u64,
        /// The pieces.
        pieces: Vec<Bytes>,
        /// Bytes of all pieces.
        length: u64,
    },
    /// A compressed cluster.
    Compressed {
        /// Where on the disk.
        offset: u64,
        /// Compressed bytes.
        bytes: Bytes,
    },
}

/// Segments that one thread handles in one go.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) segments: Vec<Segment>,
    /// Bytes of memory that the batch holds on to.
    pub(super) held_bytes: usize,
    disk_bytes: u64,
    pieces: usize,
}

impl Batch {
    /// Adds bytes that do not cross a multiple of [`BATCH_BYTES`] on the disk, joining them to the last segment if
    /// they continue it.
    pub(super) fn add_plain(&mut self, offset: u64, bytes: Bytes) {
        self.add(bytes.len(), bytes.len() as u64);
        if let Some(Segment::Plain {
            offset: start,
            pieces,
            length,
        }) = self.segments.last_mut()
            && *start + *length == offset
        {
            *length += bytes.len() as u64;
            pieces.push(bytes);
            return;
        }
        let length = bytes.len() as u64;
        self.segments.push(Segment::Plain {
            offset,
            pieces: vec![bytes],
            length,
        });
    }

    /// Adds a compressed cluster that becomes `cluster_size` bytes.
    pub(super) fn add_compressed(&mut self, offset: u64, bytes: Bytes, cluster_size: u64) {
        self.add(bytes.len(), cluster_size);
        self.segments.push(Segment::Compressed { offset, bytes });
    }

    fn add(&mut self, held_bytes: usize, disk_bytes: u64) {
        self.held_bytes += held_bytes;
        self.disk_bytes += disk_bytes;
        self.pieces += 1;
    }

    /// True when a thread should get on with it. `end` is where the last addition ends on the disk: plain data is
    /// handed over at multiples of the batch size, so that writes stay aligned.
    pub(super) fn is_full(&self, end: u64) -> bool {
        self.disk_bytes >= BATCH_BYTES || self.pieces >= BATCH_PIECES || end.is_multiple_of(BATCH_BYTES)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}
