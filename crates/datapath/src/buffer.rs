//! Buffers that are aligned for direct I/O and used again, without `unsafe`.
//!
//! A chunk of a source or of a decoder that lies in memory as it will lie on the disk, modulo a page, can be written past
//! the page cache from where it is. And memory that is still in the processor's cache from its last use is
//! several times faster than fresh pages, which the kernel has to clear first.
//!
//! Chunks lie in huge pages. The kernel then finds a few long pieces of memory in a direct write, where it found one for each
//! 4 KiB: the same disk took 0.70 s instead of 0.95 s for 1.4 GB, and the call half the CPU time (writes of 2 MiB, 2 threads).

use std::alloc::{Layout, handle_alloc_error};

use bytes::Bytes;
use memmap2::{Advice, MmapMut, MmapOptions};
use parking_lot::Mutex;

use crate::memory::HeldMemory;

/// Memory alignment and granularity of direct I/O: at least the page size, so that no page is ever written both
/// directly and through the page cache.
pub const PAGE: usize = 4096;

/// Bytes of a chunk: large enough that the cost of a chunk does not show, small enough that it stays in the cache of a
/// core until it is written.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Fewer bytes than this do not keep a chunk. What waits for the rest of a cluster or a block has its limit in bytes, and must not take many
/// times as much memory because its server sends a little at a time.
pub const SMALL_BYTES: usize = CHUNK_BYTES / 4;

/// Chunks for which the pool takes address space at once: more than are ever on their way in
/// ordinary transfers. Memory is taken by huge page, when a chunk of it is used for the first
/// time.
const POOL_CHUNKS: usize = 64;

/// Free chunks of the process, the one used last on top.
static FREE: Mutex<Vec<MmapMut>> = Mutex::new(Vec::new());

/// A chunk that nobody uses.
fn acquire_chunk() -> MmapMut {
    let mut free = FREE.lock();
    if free.is_empty() {
        // Each is a mapping of its own, so that it can be given back, and all are there before
        // the first is used: the kernel puts mappings that are made one after the other side by
        // side and makes one of them, in which there is room for huge pages.
        free.extend((0..POOL_CHUNKS).map(|_| map_chunk()));
    }
    free.pop().unwrap_or_else(map_chunk)
}

/// Memory for a chunk.
fn map_chunk() -> MmapMut {
    let Ok(memory) = MmapOptions::new().len(CHUNK_BYTES).map_anon() else {
        handle_alloc_error(Layout::new::<[u8; CHUNK_BYTES]>());
    };
    // Only makes it faster: there are kernels without.
    memory.advise(Advice::HugePage).ok();
    memory
}

/// Gives the memory of free chunks back to the system: for a process that lives on after a
/// transfer.
pub fn give_back() {
    let free = std::mem::take(&mut *FREE.lock());
    drop(free);
}

/// A fixed-size buffer that begins at a multiple of [`PAGE`] in memory.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
    _held: HeldMemory,
}

impl AlignedBuffer {
    /// `length` zero bytes.
    pub(crate) fn new(length: usize) -> Self {
        let memory = vec![0; length + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Self { _held: HeldMemory::new(memory.len()), memory, start, length }
    }

    /// The bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// The bytes, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// A chunk that is being filled.
pub struct ChunkBuffer(PooledChunk);

impl ChunkBuffer {
    /// An empty chunk for what begins at `offset` of its stream: it lies in memory as it does there, modulo [`PAGE`].
    pub fn new(offset: u64) -> Self {
        let start = usize::try_from(offset % PAGE as u64).unwrap_or(0);
        Self(PooledChunk {
            memory: Some(acquire_chunk()),
            start,
            end: start,
            _held: HeldMemory::new(CHUNK_BYTES),
        })
    }

    /// Room for the next bytes; empty when the chunk is full.
    pub fn spare_capacity(&mut self) -> &mut [u8] {
        let memory = self.0.memory.as_deref_mut().unwrap_or_default();
        &mut memory[self.0.end..]
    }

    /// The first `count` bytes of [`ChunkBuffer::spare_capacity`] were filled.
    pub fn mark_filled(&mut self, count: u64) {
        let room = self.spare_capacity().len();
        self.0.end += usize::try_from(count).map_or(room, |count| count.min(room));
    }

    /// Takes bytes off the front of `from`, as many as there is room for.
    pub fn fill_from(&mut self, from: &mut &[u8]) {
        let room = self.spare_capacity();
        let count = room.len().min(from.len());
        let (now, later) = from.split_at(count);
        room[..count].copy_from_slice(now);
        self.mark_filled(count as u64);
        *from = later;
    }

    /// True if there is no more room.
    pub fn is_full(&self) -> bool {
        self.0.end == CHUNK_BYTES
    }

    /// Bytes that were filled in.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// True if nothing was filled in.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// The bytes that were filled in.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Bytes of memory that what was filled in keeps when it is shared.
    pub fn held_bytes(&self) -> usize {
        let length = self.len();
        if length < SMALL_BYTES { length } else { CHUNK_BYTES }
    }

    /// The bytes that were filled in, to be shared: few of them in a copy.
    pub fn freeze(self) -> Bytes {
        if self.held_bytes() < CHUNK_BYTES {
            return Bytes::copy_from_slice(self.as_bytes());
        }
        Bytes::from_owner(self.0)
    }
}

/// A chunk of the pool, as long as this lives.
struct PooledChunk {
    /// There until this is dropped.
    memory: Option<MmapMut>,
    start: usize,
    end: usize,
    _held: HeldMemory,
}

impl AsRef<[u8]> for PooledChunk {
    fn as_ref(&self) -> &[u8] {
        &self.memory.as_deref().unwrap_or_default()[self.start..self.end]
    }
}

impl Drop for PooledChunk {
    fn drop(&mut self) {
        FREE.lock().extend(self.memory.take());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A chunk that begins with `bytes` at `offset`.
    fn chunk(offset: u64, bytes: &[u8]) -> Bytes {
        let mut filling = ChunkBuffer::new(offset);
        filling.fill_from(&mut &*bytes);
        filling.fill_from(&mut &[0; SMALL_BYTES][bytes.len().min(SMALL_BYTES)..]);
        filling.freeze()
    }

    #[test]
    fn chunks_lie_in_memory_as_in_the_stream() {
        for offset in [0, 1, 511, 4095, 4096, 1_000_000_007] {
            let chunk = chunk(offset, b"bytes");
            assert!(chunk.starts_with(b"bytes"));
            assert_eq!(chunk.as_ptr().addr() % PAGE, usize::try_from(offset).unwrap() % PAGE);
        }
    }

    /// Other tests of this process may use the pool meanwhile.
    #[test]
    fn a_dropped_chunk_is_used_again_and_a_held_one_is_not() {
        let part = chunk(0, b"first").slice(1..3);
        let places: HashSet<usize> = (0..1000).map(|_| chunk(0, b"other").as_ptr().addr()).collect();
        assert!(places.len() < 100, "{} places", places.len());
        assert!(!places.contains(&(part.as_ptr().addr() - 1)));
        assert_eq!(&part[..], b"ir");
    }

    #[test]
    fn chunks_do_not_overlap_whatever_their_number() {
        let count = u8::try_from(3 * POOL_CHUNKS).unwrap();
        let chunks: Vec<Bytes> = (0..count).map(|byte| chunk(0, &vec![byte; CHUNK_BYTES])).collect();
        for (byte, chunk) in (0..count).zip(&chunks) {
            assert!(chunk.len() == CHUNK_BYTES && chunk.iter().all(|other| *other == byte));
            assert_eq!(chunk.as_ptr().addr() % PAGE, 0);
        }
    }

    #[test]
    fn what_is_given_back_is_not_there_any_more() {
        let mapped = |place: usize| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| {
                let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
                let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
                (start..end).contains(&place)
            })
        };
        let kept = chunk(0, b"kept");
        let left_after_giving_back = || {
            let chunks: Vec<Bytes> = (0..POOL_CHUNKS).map(|_| chunk(0, b"bytes")).collect();
            let places: Vec<usize> = chunks.iter().map(|chunk| chunk.as_ptr().addr()).collect();
            assert!(places.iter().all(|place| mapped(*place)));
            drop(chunks);
            give_back();
            places.iter().filter(|place| mapped(**place)).count()
        };
        // Other tests of this process take chunks and addresses meanwhile: 47 of 64 were mapped again
        // once. Chunks that are never given back stay mapped in each attempt.
        let fewest = (0..20).map(|_| left_after_giving_back()).min();
        assert!(fewest < Some(POOL_CHUNKS / 2), "{fewest:?} of {POOL_CHUNKS} chunks are there");
        assert!(kept.starts_with(b"kept"));
    }

    #[test]
    fn few_bytes_keep_no_chunk() {
        for length in [1, SMALL_BYTES - 1, SMALL_BYTES, CHUNK_BYTES] {
            let mut filling = ChunkBuffer::new(0);
            filling.fill_from(&mut &vec![7; length][..]);
            let place = filling.as_bytes().as_ptr();
            assert!((length..=4 * length).contains(&filling.held_bytes()));
            let held = filling.held_bytes();
            let bytes = filling.freeze();
            assert_eq!(bytes.len(), length);
            assert_eq!(bytes.as_ptr() == place, held == CHUNK_BYTES);
        }
    }

    #[test]
    fn a_chunk_takes_what_fits() {
        let mut filling = ChunkBuffer::new(10);
        let mut bytes = &vec![7; CHUNK_BYTES][..];
        assert!(filling.is_empty());
        filling.fill_from(&mut bytes);
        assert!(filling.is_full() && filling.spare_capacity().is_empty());
        assert_eq!(bytes.len(), 10);
        assert_eq!(filling.freeze().len(), CHUNK_BYTES - 10);
    }
}
