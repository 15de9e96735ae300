//! Slices that follow each other, as if they were one.

use std::ops::Range;

/// Bytes of all slices.
pub(super) fn total(slices: &[&[u8]]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

/// A part of the slices, without empty ones.
pub(super) fn part<'a>(slices: &[&'a [u8]], range: Range<usize>) -> Vec<&'a [u8]> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_part_is_that_of_the_whole(
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
            prop_assert_eq!(total(&slices), whole.len());
            let found = part(&slices, range.clone());
            prop_assert!(found.iter().all(|slice| !slice.is_empty()));
            prop_assert_eq!(found.concat(), &whole[range]);
        }
    }
}
