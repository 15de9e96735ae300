//! Output buffers that come back when their reader has dropped them.

use bytes::Bytes;

/// Bytes of an output chunk: large enough that the cost of a chunk does not show, small enough that it
/// stays in the cache of a core until it is written.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Chunks that are remembered, so that a reader may hold a few and still have buffers recycled.
const REMEMBERED: usize = 4;

/// Hands out vectors of [`CHUNK_BYTES`] capacity and recycles those that nobody reads any more.
#[derive(Default)]
pub(super) struct Buffers {
    handed_out: Vec<Bytes>,
}

impl Buffers {
    /// An empty buffer.
    pub(super) fn take(&mut self) -> Vec<u8> {
        match self.handed_out.iter().position(Bytes::is_unique) {
            Some(free) => {
                // Ours is the last handle, so the conversion takes the allocation over.
                let mut buffer = Vec::from(self.handed_out.swap_remove(free));
                buffer.clear();
                buffer
            }
            None => Vec::with_capacity(CHUNK_BYTES),
        }
    }

    /// The chunk that `buffer` has become.
    pub(super) fn hand_out(&mut self, buffer: Vec<u8>) -> Bytes {
        // A short chunk is the last of its stream: it must not keep a large buffer alive.
        if buffer.len() < CHUNK_BYTES {
            return Bytes::from(buffer.into_boxed_slice());
        }
        let chunk = Bytes::from(buffer);
        if self.handed_out.len() == REMEMBERED {
            self.handed_out.remove(0);
        }
        self.handed_out.push(chunk.clone());
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(buffers: &mut Buffers) -> Bytes {
        let mut buffer = buffers.take();
        buffer.resize(CHUNK_BYTES, 7);
        buffers.hand_out(buffer)
    }

    #[test]
    fn a_dropped_chunk_is_used_again() {
        let mut buffers = Buffers::default();
        let address = full(&mut buffers).as_ptr();
        let again = buffers.take();
        assert_eq!(again.as_ptr(), address);
        assert!(again.is_empty() && again.capacity() == CHUNK_BYTES);
    }

    #[test]
    fn a_chunk_that_is_read_is_left_alone() {
        let mut buffers = Buffers::default();
        let held: Vec<Bytes> = (0..3 * REMEMBERED).map(|_| full(&mut buffers)).collect();
        let mut other = buffers.take();
        other.resize(CHUNK_BYTES, 0);
        assert!(held.iter().all(|chunk| chunk.iter().all(|&byte| byte == 7)));
        assert_eq!(buffers.handed_out.len(), REMEMBERED);
    }
}
