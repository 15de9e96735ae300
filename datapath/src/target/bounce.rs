//! Bringing bytes into the alignment that direct I/O wants.

use super::slices::total;
use crate::buffer::AlignedBuffer;

/// Memory of one thread to bring bytes into the alignment that direct I/O wants.
#[derive(Default)]
pub(super) struct Bounce {
    buffer: Option<AlignedBuffer>,
}

/// Bytes that a [`Bounce`] holds: those of a batch. Larger clusters are inflated into aligned memory.
const BOUNCE_BYTES: usize = 1 << 20;

impl Bounce {
    /// Copies slices into one piece that is aligned in memory.
    pub(super) fn join(&mut self, slices: &[&[u8]]) -> &[u8] {
        let length = total(slices);
        let small = |buffer: &AlignedBuffer| buffer.bytes().len() < length;
        if self.buffer.as_ref().is_none_or(small) {
            self.buffer = None;
        }
        let buffer = self
            .buffer
            .get_or_insert_with(|| AlignedBuffer::new(length.max(BOUNCE_BYTES)));
        let mut rest = &mut buffer.bytes_mut()[..length];
        for slice in slices {
            let (now, later) = rest.split_at_mut(slice.len());
            now.copy_from_slice(slice);
            rest = later;
        }
        &buffer.bytes()[..length]
    }
}
