//! Verifies that tables fetched ahead of the stream are identical to the bytes that later pass in
//! it. The digest of the whole object covers only the stream, but the tables fetched separately
//! decided where all data goes.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use stream::error::{Error, FormatError, SourceError, SourceErrorKind};
use stream::memory::MemoryGrant;

/// Memory that one range takes: 48 bytes in a tree node, which is half full when ranges come in
/// order.
const RANGE_BYTES: u64 = 96;

type Hash = [u8; 32];

/// A range whose bytes are passing in the stream.
struct PassingRange {
    range: Range<u64>,
    expected: Hash,
    /// Digest of the part that has passed.
    digest: Sha256,
}

/// The ranges that were fetched ahead and have not completely passed yet.
pub(super) struct PrefetchedRanges {
    /// SHA-256 of each range that has not begun to pass.
    waiting: BTreeMap<(u64, u64), Hash>,
    passing: Vec<PassingRange>,
    memory: MemoryGrant,
}

impl PrefetchedRanges {
    /// Creates an empty list of ranges. Its memory is charged to `memory`.
    pub(super) fn new(memory: MemoryGrant) -> Self {
        Self { waiting: BTreeMap::new(), passing: Vec::new(), memory }
    }

    /// Records the bytes that were fetched from `start` on.
    pub(super) fn add_range(&mut self, start: u64, bytes: &[u8]) -> Result<(), Error> {
        let range = start..start.saturating_add(bytes.len() as u64);
        // A digest takes 32 bytes for a table of any size. A CRC would not suffice: a server that
        // changes the image could also choose bytes with the same CRC.
        let hash: Hash = Sha256::digest(bytes).into();
        self.memory
            .resize((self.waiting.len() as u64 + 1) * RANGE_BYTES)
            .map_err(FormatError::Tables)?;
        match self.waiting.insert((range.start, range.end), hash) {
            Some(before) if before != hash => Err(changed_error(&range)),
            _ => Ok(()),
        }
    }

    /// Checks the next bytes of the stream, which begin at `position`. Every chunk of the stream
    /// must pass through here.
    pub(super) fn verify_chunk(&mut self, position: u64, chunk: &Bytes) -> Result<(), Error> {
        let end = position.saturating_add(chunk.len() as u64);
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 < end
        {
            let ((start, end), expected) = first.remove_entry();
            self.passing.push(PassingRange { range: start..end, expected, digest: Sha256::new() });
        }
        for passing in &mut self.passing {
            let from = passing.range.start.max(position);
            let until = passing.range.end.min(end);
            if let Some(part) = chunk_part(chunk, position, from..until) {
                passing.digest.update(part);
            }
        }
        // Compare a range only when its last byte has passed; a digest of a part proves nothing.
        let passed = self.passing.extract_if(.., |passing| passing.range.end <= end);
        for PassingRange { range, expected, digest } in passed {
            if Hash::from(digest.finalize()) != expected {
                return Err(changed_error(&range));
            }
        }
        Ok(())
    }
}

fn chunk_part(chunk: &[u8], position: u64, range: Range<u64>) -> Option<&[u8]> {
    let start = usize::try_from(range.start.checked_sub(position)?).ok()?;
    let end = usize::try_from(range.end.checked_sub(position)?).ok()?;
    chunk.get(start..end)
}

fn changed_error(range: &Range<u64>) -> Error {
    let sentence = format!(
        "bytes {:#x} to {:#x} of the image differ between two reads: the image was changed in the meantime, or damaged in transit",
        range.start, range.end
    );
    SourceError::new(SourceErrorKind::Changed, sentence).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stream::memory::MemoryBudget;

    use super::*;

    fn pass(ahead: &mut PrefetchedRanges, bytes: &[u8], chunk: usize) -> Result<(), Error> {
        let mut position = 0;
        for piece in bytes.chunks(chunk) {
            ahead.verify_chunk(position, &Bytes::copy_from_slice(piece))?;
            position += piece.len() as u64;
        }
        Ok(())
    }

    #[test]
    fn a_range_that_is_fetched_twice_must_be_the_same() {
        let budget = MemoryBudget::new(1 << 20);
        let mut ahead = PrefetchedRanges::new(budget.empty_grant());
        ahead.add_range(10, b"one").unwrap();
        ahead.add_range(10, b"one").unwrap();
        assert!(ahead.add_range(10, b"two").is_err());
    }

    #[test]
    fn prefetched_ranges_stay_within_the_memory_budget() {
        let budget = MemoryBudget::new(100 * RANGE_BYTES);
        let mut ahead = PrefetchedRanges::new(budget.empty_grant());
        let added = (0..1000).take_while(|at| ahead.add_range(at * 10, b"table").is_ok());
        assert_eq!(added.count(), 100);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn any_changed_byte_in_a_prefetched_range_is_detected(
            ranges in prop::collection::vec((0usize..1000, 1usize..200), 1..8),
            chunk in 1usize..400,
            changed in 0usize..1200,
        ) {
            let bytes: Vec<u8> = (0..1200u32).map(|i| (i % 251) as u8).collect();
            let budget = MemoryBudget::new(1 << 20);
            let mut ahead = PrefetchedRanges::new(budget.empty_grant());
            for (start, length) in &ranges {
                ahead.add_range(*start as u64, &bytes[*start..start + length]).unwrap();
            }
            let mut other = bytes.clone();
            other[changed] ^= 1;
            let is_fetched = ranges.iter().any(|(start, length)| (*start..start + length).contains(&changed));
            prop_assert_eq!(pass(&mut ahead, &other, chunk).is_err(), is_fetched);

            let budget = MemoryBudget::new(1 << 20);
            let mut ahead = PrefetchedRanges::new(budget.empty_grant());
            for (start, length) in &ranges {
                ahead.add_range(*start as u64, &bytes[*start..start + length]).unwrap();
            }
            prop_assert!(pass(&mut ahead, &bytes, chunk).is_ok());
            prop_assert!(ahead.waiting.is_empty() && ahead.passing.is_empty());
        }
    }
}
