//! Tables that were fetched ahead of the stream must be what then passes in it: the digest of the whole is taken of the
//! stream, and what was fetched beside it decided where everything goes.

use std::ops::Range;

use bytes::Bytes;

use crate::digest::{Algorithm, Digest};
use crate::error::{Error, SourceError, SourceErrorKind};

/// A range that was fetched ahead.
struct Fetched {
    range: Range<u64>,
    /// SHA-256 of what it had.
    digest: String,
    /// Of what has passed of it.
    passing: Digest,
}

impl Fetched {
    fn new(start: u64, bytes: &[u8]) -> Self {
        Self {
            range: start..start.saturating_add(bytes.len() as u64),
            digest: digest(bytes),
            passing: Digest::new(Algorithm::Sha256),
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    let mut digest = Digest::new(Algorithm::Sha256);
    digest.update(bytes);
    digest.finish()
}

/// The ranges that were fetched ahead and have not passed yet.
#[derive(Default)]
pub struct Ahead {
    /// By start, the last first.
    ranges: Vec<Fetched>,
}

impl Ahead {
    /// Remembers what was fetched from `start` on.
    pub(super) fn add(&mut self, start: u64, bytes: &[u8]) {
        self.ranges.push(Fetched::new(start, bytes));
        self.ranges
            .sort_by_key(|fetched| std::cmp::Reverse(fetched.range.start));
    }

    /// The stream is at `position`, and these are its next bytes; each must pass here.
    pub(super) fn pass(&mut self, position: u64, chunk: &Bytes) -> Result<(), Error> {
        let end = position.saturating_add(chunk.len() as u64);
        let mut index = self.ranges.len();
        while let Some(next) = index.checked_sub(1)
            && self.ranges[next].range.start < end
        {
            index = next;
            let fetched = &mut self.ranges[index];
            let from = fetched.range.start.max(position);
            let until = fetched.range.end.min(end);
            if let Some(part) = part(chunk, position, from..until) {
                fetched.passing.update(part);
            }
            if fetched.range.end <= end {
                let fetched = self.ranges.remove(index);
                if fetched.passing.finish() != fetched.digest {
                    return Err(changed(&fetched.range));
                }
            }
        }
        Ok(())
    }
}

fn part(chunk: &[u8], position: u64, range: Range<u64>) -> Option<&[u8]> {
    let start = usize::try_from(range.start.checked_sub(position)?).ok()?;
    let end = usize::try_from(range.end.checked_sub(position)?).ok()?;
    chunk.get(start..end)
}

fn changed(range: &Range<u64>) -> Error {
    let sentence = format!(
        "bytes {:#x} to {:#x} of the image were others when its tables were fetched than when it was read: it was changed meanwhile, or damaged on the way",
        range.start, range.end
    );
    SourceError::new(SourceErrorKind::Changed, sentence).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pass(ahead: &mut Ahead, bytes: &[u8], chunk: usize) -> Result<(), Error> {
        let mut position = 0;
        for piece in bytes.chunks(chunk) {
            ahead.pass(position, &Bytes::copy_from_slice(piece))?;
            position += piece.len() as u64;
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn every_changed_byte_of_what_was_fetched_is_found(
            ranges in prop::collection::vec((0usize..1000, 1usize..200), 1..8),
            chunk in 1usize..400,
            changed in 0usize..1200,
        ) {
            let bytes: Vec<u8> = (0..1200u32).map(|i| (i % 251) as u8).collect();
            let mut ahead = Ahead::default();
            for (start, length) in &ranges {
                ahead.add(*start as u64, &bytes[*start..start + length]);
            }
            let mut other = bytes.clone();
            other[changed] ^= 1;
            let is_fetched = ranges.iter().any(|(start, length)| (*start..start + length).contains(&changed));
            prop_assert_eq!(pass(&mut ahead, &other, chunk).is_err(), is_fetched);

            let mut ahead = Ahead::default();
            for (start, length) in &ranges {
                ahead.add(*start as u64, &bytes[*start..start + length]);
            }
            prop_assert!(pass(&mut ahead, &bytes, chunk).is_ok());
            prop_assert!(ahead.ranges.is_empty());
        }
    }
}
