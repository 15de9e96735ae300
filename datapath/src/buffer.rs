//! Buffers that are aligned for direct I/O and used again, without `unsafe`.
//!
//! A chunk of a source or of a decoder that lies in memory as it will lie on the disk, modulo a page, can be written past
//! the page cache from where it is. And memory that is still in the processor's cache from its last use is
//! several times faster than fresh pages, which the kernel has to clear first.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::memory::Held;

/// Memory alignment and granularity of direct I/O: at least the page size, so that no page is ever written both
/// directly and through the page cache.
pub const PAGE: usize = 4096;

/// Bytes of a chunk: large enough that the cost of a chunk does not show, small enough that it stays in the cache of a
/// core until it is written.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Free chunks that a pool keeps: more than are ever on their way at once in ordinary transfers.
const MAX_FREE: usize = 64;

/// A fixed-size buffer that begins at a multiple of [`PAGE`] in memory.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
    _held: Held,
}

impl AlignedBuffer {
    /// `length` zero bytes.
    pub(crate) fn new(length: usize) -> Self {
        let memory = vec![0; length + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Self {
            _held: Held::new(memory.len()),
            memory,
            start,
            length,
        }
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// The bytes, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Buffers of [`CHUNK_BYTES`] that come back when the last reader of their chunk has dropped it. Clones share them.
#[derive(Clone, Default)]
pub struct Pool {
    free: Arc<Mutex<Vec<AlignedBuffer>>>,
}

impl Pool {
    /// An empty buffer for what begins at `offset` of its stream: it lies in memory as it does there, modulo [`PAGE`].
    pub fn take(&self, offset: u64) -> Filling {
        let recycled = self.free.lock().pop();
        let start = usize::try_from(offset % PAGE as u64).unwrap_or(0);
        Filling {
            chunk: Chunk {
                buffer: Some(recycled.unwrap_or_else(|| AlignedBuffer::new(CHUNK_BYTES))),
                free: Arc::clone(&self.free),
                start,
                end: start,
            },
        }
    }
}

/// A buffer that is being filled.
pub struct Filling {
    chunk: Chunk,
}

impl Filling {
    /// Room for the next bytes; empty when the buffer is full.
    pub fn room(&mut self) -> &mut [u8] {
        let end = self.chunk.end;
        self.chunk
            .buffer
            .as_mut()
            .map_or(&mut [], |buffer| &mut buffer.bytes_mut()[end..])
    }

    /// The first `count` bytes of [`Filling::room`] were filled.
    pub fn filled(&mut self, count: u64) {
        let room = CHUNK_BYTES - self.chunk.end;
        self.chunk.end += usize::try_from(count).map_or(room, |count| count.min(room));
    }

    /// Takes bytes off the front of `from`, as many as there is room for.
    pub fn fill_from(&mut self, from: &mut &[u8]) {
        let room = self.room();
        let count = room.len().min(from.len());
        let (now, later) = from.split_at(count);
        room[..count].copy_from_slice(now);
        self.filled(count as u64);
        *from = later;
    }

    /// True if there is no more room.
    pub fn is_full(&self) -> bool {
        self.chunk.end == CHUNK_BYTES
    }

    /// Bytes that were filled in.
    pub fn len(&self) -> usize {
        self.chunk.end - self.chunk.start
    }

    /// True if nothing was filled in.
    pub fn is_empty(&self) -> bool {
        self.chunk.end == self.chunk.start
    }

    /// The bytes that were filled in.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self.chunk)
    }
}

/// Bytes in a buffer that goes back to its pool.
struct Chunk {
    /// `None` only while it is dropped.
    buffer: Option<AlignedBuffer>,
    free: Arc<Mutex<Vec<AlignedBuffer>>>,
    start: usize,
    end: usize,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self.buffer
            .as_ref()
            .map_or(&[], |buffer| &buffer.bytes()[self.start..self.end])
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut free = self.free.lock();
        if free.len() < MAX_FREE {
            free.extend(self.buffer.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(pool: &Pool, offset: u64, mut bytes: &[u8]) -> Bytes {
        let mut filling = pool.take(offset);
        filling.fill_from(&mut bytes);
        filling.freeze()
    }

    #[test]
    fn chunks_lie_in_memory_as_in_the_stream() {
        let pool = Pool::default();
        for offset in [0, 1, 511, 4095, 4096, 1_000_000_007] {
            let chunk = chunk(&pool, offset, b"bytes");
            assert_eq!(&chunk[..], b"bytes");
            assert_eq!(
                chunk.as_ptr().addr() % PAGE,
                usize::try_from(offset).unwrap() % PAGE
            );
        }
    }

    #[test]
    fn a_dropped_chunk_is_used_again_and_a_held_one_is_not() {
        let pool = Pool::default();
        let first = chunk(&pool, 0, b"first");
        let part = first.slice(1..3);
        let address = first.as_ptr();
        drop(first);
        assert_ne!(chunk(&pool, 0, b"other").as_ptr(), address);
        assert_eq!(&part[..], b"ir");
        drop(part);
        assert_eq!(chunk(&pool, 0, b"third").as_ptr(), address);
    }

    #[test]
    fn a_buffer_takes_what_fits() {
        let mut filling = Pool::default().take(10);
        let mut bytes = &vec![7; CHUNK_BYTES][..];
        assert!(filling.is_empty());
        filling.fill_from(&mut bytes);
        assert!(filling.is_full() && filling.room().is_empty());
        assert_eq!(bytes.len(), 10);
        assert_eq!(filling.freeze().len(), CHUNK_BYTES - 10);
    }
}
