//! A source in memory. The benchmarks include this file as well.

use std::ops::Range;

use bytes::Bytes;
use stream::changes::ChangedRanges;
use stream::error::{SourceError, SourceErrorKind};
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};

/// An object in memory that arrives in chunks of chosen sizes and may fail on the way.
pub struct Memory {
    /// The object.
    pub bytes: Bytes,
    /// Sizes of the chunks, repeated in turn.
    pub chunks: Vec<usize>,
    /// True if the object can be read at random offsets.
    pub ranged: bool,
    /// What ranged reads return, if not the same as the stream.
    pub ahead: Option<Bytes>,
    /// Reading fails with a source error at this offset.
    pub broken_at: Option<usize>,
    /// What the source states about the disk.
    pub stated: Option<StatedDisk>,
    /// The ranges of the disk that the object consists of.
    pub changes: Option<ChangedRanges>,
}

impl Memory {
    /// An object that is read once, in order.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            chunks: vec![100_000],
            ranged: false,
            ahead: None,
            broken_at: None,
            stated: None,
            changes: None,
        }
    }

    /// An object that can be read at random offsets as well.
    pub fn ranged(bytes: impl Into<Bytes>) -> Self {
        Self { ranged: true, ..Self::new(bytes) }
    }
}

fn index(offset: u64) -> Result<usize, SourceError> {
    usize::try_from(offset)
        .map_err(|error| SourceError::new(SourceErrorKind::Invalid, error.to_string()))
}

impl Source for Memory {
    fn name(&self) -> String {
        "memory".into()
    }

    fn total_bytes(&self) -> Option<u64> {
        let whole = self.ranged.then_some(self.bytes.len() as u64);
        self.changes.as_ref().map_or(whole, |changes| Some(changes.changed_bytes()))
    }

    fn is_ranged(&self) -> bool {
        self.ranged
    }

    fn stated_disk(&self) -> Option<StatedDisk> {
        self.stated
    }

    fn changed_ranges(&self) -> Option<&ChangedRanges> {
        self.changes.as_ref()
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(MemoryBody {
            bytes: self.bytes.clone(),
            position: 0,
            chunks: self.chunks.clone().into_iter().cycle(),
            broken_at: self.broken_at.unwrap_or(usize::MAX),
        }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let range = index(range.start)?..index(range.end)?;
        Ok(self.ahead.as_ref().unwrap_or(&self.bytes).slice(range))
    }
}

struct MemoryBody {
    bytes: Bytes,
    position: usize,
    chunks: std::iter::Cycle<std::vec::IntoIter<usize>>,
    broken_at: usize,
}

impl SourceBody for MemoryBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.position == self.broken_at {
            return Err(SourceError::new(SourceErrorKind::Io, "the wire is cut"));
        }
        let size = self.chunks.next().unwrap_or(usize::MAX).max(1);
        let end = self.position.saturating_add(size).min(self.bytes.len()).min(self.broken_at);
        let chunk = self.bytes.slice(self.position..end);
        self.position = end;
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.position = index(offset)?;
        Ok(())
    }
}
