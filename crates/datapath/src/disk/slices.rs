//! Treats slices that follow each other as one.

use std::ops::Range;

use stream::buffer::ChunkBuffer;

/// Total length of all slices in bytes.
pub(super) fn total_bytes(slices: &[&[u8]]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

/// The given range of the concatenated slices, without empty slices.
pub(super) fn sub_slices<'a>(slices: &[&'a [u8]], range: Range<usize>) -> Vec<&'a [u8]> {
    let mut skip = range.start;
    let mut want = range.len();
    let mut found = Vec::with_capacity(slices.len());
    for slice in slices {
        if skip >= slice.len() {
            skip -= slice.len();
            continue;
        }
        let take = (slice.len() - skip).min(want);
        if take == 0 {
            break;
        }
        found.push(&slice[skip..skip + take]);
        skip = 0;
        want -= take;
    }
    found
}

/// Copies the bytes into chunks, which are aligned for direct I/O. All chunks but the last are
/// full.
pub(super) fn copy_to_chunks(slices: &[&[u8]]) -> Vec<ChunkBuffer> {
    let mut chunks: Vec<ChunkBuffer> = Vec::new();
    for mut slice in slices.iter().copied() {
        while !slice.is_empty() {
            match chunks.last_mut().filter(|chunk| !chunk.is_full()) {
                Some(chunk) => chunk.fill_from(&mut slice),
                None => chunks.push(ChunkBuffer::new(0)),
            }
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stream::buffer::{CHUNK_BYTES, PAGE};

    use super::*;

    proptest! {
        #[test]
        fn a_part_of_the_slices_equals_a_part_of_the_whole(
            lengths in prop::collection::vec(0usize..20, 0..10),
            ends in (0usize..200, 0usize..200),
        ) {
            let whole: Vec<u8> = (0..=u8::MAX).cycle().take(lengths.iter().sum()).collect();
            let mut rest = &whole[..];
            let slices: Vec<&[u8]> = lengths
                .iter()
                .map(|length| {
                    let (slice, later) = rest.split_at(*length);
                    rest = later;
                    slice
                })
                .collect();
            let range = ends.0.min(ends.1).min(whole.len())..ends.0.max(ends.1).min(whole.len());
            prop_assert_eq!(total_bytes(&slices), whole.len());
            let found = sub_slices(&slices, range.clone());
            prop_assert!(found.iter().all(|slice| !slice.is_empty()));
            prop_assert_eq!(found.concat(), &whole[range]);
        }

        #[test]
        fn joined_slices_are_the_same_bytes_in_full_chunks(lengths in prop::collection::vec(0usize..300_000, 0..10)) {
            let whole: Vec<u8> = (0..251).cycle().take(lengths.iter().sum()).collect();
            let mut rest = &whole[..];
            let slices: Vec<&[u8]> = lengths.iter().map(|length| rest.split_off(..*length).unwrap()).collect();
            let chunks = copy_to_chunks(&slices);
            let bytes: Vec<&[u8]> = chunks.iter().map(ChunkBuffer::as_bytes).collect();
            prop_assert!(bytes.concat() == whole);
            prop_assert_eq!(chunks.len(), whole.len().div_ceil(CHUNK_BYTES));
            prop_assert!(bytes.iter().all(|bytes| bytes.as_ptr().addr().is_multiple_of(PAGE)));
        }
    }
}
