//! A buffer whose memory is aligned for direct I/O, without `unsafe`.

/// Memory alignment and granularity of direct I/O: at least the page size, so that no page is ever written both
/// directly and through the page cache.
pub(super) const PAGE: usize = 4096;

/// A fixed-size buffer that begins at a multiple of [`PAGE`] in memory.
pub(super) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// `length` zero bytes.
    pub(super) fn new(length: usize) -> Self {
        let memory = vec![0; length + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Self {
            memory,
            start,
            length,
        }
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    /// The bytes, to be changed.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}
