//! Checked big-endian reads from a byte slice.

/// The big-endian `u32` at `offset`, or `None` when the slice ends before it.
pub fn be32(bytes: &[u8], offset: usize) -> Option<u32> {
    let end = offset.checked_add(4)?;
    bytes.get(offset..end)?.try_into().ok().map(u32::from_be_bytes)
}

/// The big-endian `u64` at `offset`, or `None` when the slice ends before it.
pub fn be64(bytes: &[u8], offset: usize) -> Option<u64> {
    let end = offset.checked_add(8)?;
    bytes.get(offset..end)?.try_into().ok().map(u64::from_be_bytes)
}
