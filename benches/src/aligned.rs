//! Memory that is aligned for direct I/O.

use bytes::Bytes;
use stream::buffer::PAGE;

/// Returns a copy of `bytes` that begins at a page boundary in memory.
pub fn aligned(bytes: &[u8]) -> Bytes {
    let mut memory = Vec::<u8>::with_capacity(bytes.len() + PAGE);
    let skew = memory.as_ptr().align_offset(PAGE).min(PAGE);
    memory.resize(skew, 0);
    memory.extend_from_slice(bytes);
    Bytes::from(memory).slice(skew..)
}
