//! Reads selected ranges of another source, one after the other, as one stream.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use stream::changes::ChangedRanges;
use stream::error::{SourceError, SourceErrorKind};
use stream::memory::MemoryGrant;
use stream::source::{Source, SourceBody};
use stream::storage::StorageLocation;

use crate::error::invalid_error;

/// A source that reads only those ranges of a disk that a map lists.
pub struct RangesSource {
    disk: Box<dyn Source>,
    changes: ChangedRanges,
    /// Keeps the memory of `changes` charged.
    _memory: MemoryGrant,
}

impl RangesSource {
    /// Creates a source that reads `changes`, which take `memory`, from `disk`. Fails if `disk`
    /// does not support ranges, or if its digest covers the whole disk.
    pub fn new(
        disk: Box<dyn Source>,
        changes: ChangedRanges,
        memory: MemoryGrant,
    ) -> Result<Self, SourceError> {
        let why = if !disk.is_ranged() {
            "the server does not support range requests"
        } else if disk.has_own_digest() {
            "its digest can only be checked over the whole disk"
        } else {
            return Ok(Self { disk, changes, _memory: memory });
        };
        let name = disk.name();
        Err(invalid_error(format!(
            "cannot read ranges of {name}: {why}; download the whole disk instead"
        )))
    }
}

impl Source for RangesSource {
    fn name(&self) -> String {
        self.disk.name()
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.changes.changed_bytes())
    }

    fn changed_ranges(&self) -> Option<&ChangedRanges> {
        Some(&self.changes)
    }

    fn storage_location(&self) -> Option<StorageLocation> {
        self.disk.storage_location()
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(RangesBody {
            body: self.disk.open_body()?,
            ranges: Arc::clone(self.changes.ranges()),
            index: 0,
            position: 0,
            rest: Bytes::new(),
        }))
    }
}

struct RangesBody {
    body: Box<dyn SourceBody>,
    ranges: Arc<[Range<u64>]>,
    index: usize,
    /// Offset on the disk of the next byte, which is the first of `rest`.
    position: u64,
    /// Received bytes that were not returned yet.
    rest: Bytes,
}

impl RangesBody {
    /// Skips to `start`, which is not before the current position.
    fn advance_to(&mut self, start: u64) -> Result<(), SourceError> {
        let skipped =
            usize::try_from(start - self.position).unwrap_or(usize::MAX).min(self.rest.len());
        drop(self.rest.split_to(skipped));
        self.position += skipped as u64;
        if self.position < start {
            self.body.skip_to(start)?;
            self.position = start;
        }
        Ok(())
    }
}

impl SourceBody for RangesBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let Some(range) = self.ranges.get(self.index).cloned() else {
            return Ok(None);
        };
        if self.position < range.start {
            self.advance_to(range.start)?;
        }
        if self.rest.is_empty() {
            let chunk = self.body.next_chunk()?;
            self.rest = chunk.ok_or_else(|| {
                let message = format!(
                    "the disk ends at {}, but the map lists bytes up to {}",
                    self.position, range.end
                );
                SourceError::new(SourceErrorKind::Length, message)
            })?;
        }
        let wanted = usize::try_from(range.end - self.position).unwrap_or(usize::MAX);
        let chunk = self.rest.split_to(wanted.min(self.rest.len()));
        self.position += chunk.len() as u64;
        if self.position == range.end {
            self.index += 1;
        }
        Ok(Some(chunk))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::file::FileSource;

    #[test]
    fn a_disk_whose_ranges_cannot_be_read_is_refused_with_the_reason() {
        let refused = |disk: FileSource| {
            let changes = ChangedRanges::new(10, std::iter::once(0..1)).unwrap();
            let source = RangesSource::new(Box::new(disk), changes, MemoryGrant::default());
            source.err().unwrap().to_string()
        };
        let open = |path: &std::path::Path| FileSource::open(path, CancellationToken::new());
        let error = refused(open(std::path::Path::new("/dev/null")).unwrap());
        assert!(error.contains("does not support range requests"), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
        let disk = open(file.path()).unwrap().with_expected(digest, "a list".to_owned());
        let error = refused(disk);
        assert!(error.contains("digest can only be checked over the whole disk"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn exactly_the_ranges_arrive(mut ends in prop::collection::vec(0u64..2_000_000, 2..20)) {
            ends.sort_unstable();
            ends.dedup();
            let ranges: Vec<_> = ends.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
            let bytes: Vec<u8> = (0..2_000_000u32).map(|at| (at % 251) as u8).collect();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            let disk = FileSource::open(file.path(), CancellationToken::new()).unwrap();
            let changes = ChangedRanges::new(2_000_000, ranges.clone()).unwrap();
            let memory = MemoryGrant::default();
            let source = RangesSource::new(Box::new(disk), changes, memory).unwrap();
            let (mut body, mut read) = (source.open_body().unwrap(), Vec::new());
            while let Some(chunk) = body.next_chunk().unwrap() {
                prop_assert!(!chunk.is_empty());
                read.extend_from_slice(&chunk);
            }
            let at = |offset: u64| usize::try_from(offset).unwrap();
            let expected: Vec<u8> =
                ranges.iter().flat_map(|range| bytes[at(range.start)..at(range.end)].to_vec()).collect();
            prop_assert!(read == expected);
        }
    }
}
