//! A source in memory.

use std::ops::Range;

use bytes::Bytes;
use stream::buffer::CHUNK_BYTES;
use stream::changes::ChangedRanges;
use stream::error::{SourceError, SourceErrorKind};
use stream::source::{Source, SourceBody};

use crate::aligned;

/// An object in memory that is read in aligned chunks, like those of the importer's sources.
pub struct Memory {
    bytes: Bytes,
    ranged: bool,
    changes: Option<ChangedRanges>,
}

impl Memory {
    /// An object that can be read at random offsets if `ranged`, and otherwise once, in order.
    pub fn new(bytes: &[u8], ranged: bool) -> Self {
        Self { bytes: aligned(bytes), ranged, changes: None }
    }

    /// The concatenated changed ranges of a disk.
    pub fn changed(bytes: &[u8], changes: ChangedRanges) -> Self {
        Self { changes: Some(changes), ..Self::new(bytes, false) }
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
        self.ranged.then_some(self.bytes.len() as u64)
    }

    fn is_ranged(&self) -> bool {
        self.ranged
    }

    fn changed_ranges(&self) -> Option<&ChangedRanges> {
        self.changes.as_ref()
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(MemoryBody { bytes: self.bytes.clone(), position: 0 }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        Ok(self.bytes.slice(index(range.start)?..index(range.end)?))
    }
}

struct MemoryBody {
    bytes: Bytes,
    position: usize,
}

impl SourceBody for MemoryBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let end = self.bytes.len().min(self.position + CHUNK_BYTES);
        let chunk = self.bytes.slice(self.position..end);
        self.position = end;
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.position = index(offset)?.min(self.bytes.len());
        Ok(())
    }
}
