//! Copies the buffers of a network library into chunks that the target can write without another
//! copy.
//!
//! A library's buffers lie anywhere in memory, and each time in fresh memory. They are copied
//! once, while the data is still in the processor's cache. The copy is aligned ([`ChunkBuffer`]),
//! the library's buffer is free again, and runs of zeros become references to the shared block of
//! zeros, which need not be examined again. Without this, a quarter of the time of a raw import
//! was spent on fresh pages.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::buffer::ChunkBuffer;
use crate::zeros::{ZEROS, is_zero};

/// Granularity at which zeros are detected. Cheaper than checking every page, and small compared
/// with one read of a socket.
const RUN_BYTES: usize = 16 << 10;

/// A chunk, and the amount of memory that it keeps allocated.
pub struct HeldChunk {
    /// The content of the chunk.
    pub bytes: Bytes,
    /// Bytes of memory that become free only when this chunk is dropped.
    pub held: usize,
}

/// Copies the bytes of one stream into chunks.
pub struct ChunkCopier {
    /// Offset of the next byte in the stream.
    offset: u64,
    filling: Option<ChunkBuffer>,
    /// Number of zero bytes that follow the filled part.
    zeros: usize,
    ready: VecDeque<HeldChunk>,
}

impl ChunkCopier {
    /// For a stream that begins at `offset` of its object.
    pub fn new(offset: u64) -> Self {
        Self { offset, filling: None, zeros: 0, ready: VecDeque::new() }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let to_boundary =
                RUN_BYTES - usize::try_from(self.offset % RUN_BYTES as u64).unwrap_or(0);
            let (part, rest) = bytes.split_at(to_boundary.min(bytes.len()));
            if part.len() == RUN_BYTES && is_zero(part) {
                self.push_zeros();
            } else {
                self.push_data(part);
            }
            self.offset += part.len() as u64;
            bytes = rest;
        }
    }

    fn push_zeros(&mut self) {
        self.hand_over_data();
        self.zeros += RUN_BYTES;
        if self.zeros == ZEROS.len() {
            self.hand_over_zeros();
        }
    }

    fn push_data(&mut self, mut part: &[u8]) {
        self.hand_over_zeros();
        let mut at = self.offset;
        while !part.is_empty() {
            let filling = self.filling.get_or_insert_with(|| ChunkBuffer::new(at));
            let before = part.len();
            filling.fill_from(&mut part);
            at += (before - part.len()) as u64;
            if filling.is_full() {
                self.hand_over_data();
            }
        }
    }

    fn hand_over_data(&mut self) {
        if let Some(filling) = self.filling.take() {
            self.ready.push_back(HeldChunk { held: filling.held_bytes(), bytes: filling.freeze() });
        }
    }

    fn hand_over_zeros(&mut self) {
        if self.zeros > 0 {
            self.ready
                .push_back(HeldChunk { bytes: Bytes::from_static(&ZEROS[..self.zeros]), held: 0 });
            self.zeros = 0;
        }
    }

    /// Returns the next chunk that is ready, if any.
    pub fn pop(&mut self) -> Option<HeldChunk> {
        self.ready.pop_front()
    }

    /// True if bytes are waiting for their chunk to be filled.
    pub(crate) fn has_rest(&self) -> bool {
        self.filling.is_some() || self.zeros > 0
    }

    /// Makes the waiting bytes ready too. For the end of the stream, or a slow stream.
    pub fn flush(&mut self) {
        self.hand_over_data();
        self.hand_over_zeros();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::buffer::{PAGE, SMALL_BYTES};

    fn copied(copier: &mut ChunkCopier) -> Vec<Bytes> {
        std::iter::from_fn(|| copier.pop()).map(|copied| copied.bytes).collect()
    }

    #[test]
    fn zeros_are_packed_as_large_shared_chunks() {
        let mut copier = ChunkCopier::new(0);
        (0..16).for_each(|_| copier.push(&[0; 64 << 10]));
        let pieces = copied(&mut copier);
        assert!(pieces.iter().all(|piece| piece.as_ptr() == ZEROS.as_ptr()));
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), 1 << 20);
        assert_eq!(pieces.len(), (1 << 20) / ZEROS.len());
    }

    #[test]
    fn a_small_rest_waits_for_more_bytes_or_a_flush() {
        let mut copier = ChunkCopier::new(5);
        copier.push(b"some");
        assert!(copier.has_rest() && copier.pop().is_none());
        copier.flush();
        assert!(!copier.has_rest());
        assert_eq!(copied(&mut copier), ["some"]);
    }

    proptest! {
        #[test]
        fn the_bytes_stay_the_same_and_their_chunks_are_aligned(
            start in 0u64..100_000,
            runs in prop::collection::vec((any::<u8>(), 1usize..100_000), 0..20),
            cuts in prop::collection::vec((1usize..500_000, any::<bool>()), 1..20),
        ) {
            let stream: Vec<u8> = runs
                .iter()
                .flat_map(|(byte, length)| std::iter::repeat_n(byte.saturating_sub(128), *length))
                .collect();
            let mut copier = ChunkCopier::new(start);
            let mut pieces = Vec::new();
            let mut rest = &stream[..];
            for (cut, flush) in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                copier.push(now);
                if *flush { copier.flush(); }
                pieces.extend(copied(&mut copier));
                rest = later;
            }
            copier.flush();
            pieces.extend(copied(&mut copier));
            let mut offset = usize::try_from(start).unwrap();
            for piece in &pieces {
                let shared = ZEROS.as_ptr_range().contains(&piece.as_ptr());
                prop_assert!(shared || piece.len() < SMALL_BYTES || piece.as_ptr().addr() % PAGE == offset % PAGE);
                offset += piece.len();
            }
            prop_assert!(pieces.concat() == stream);
        }
    }
}
