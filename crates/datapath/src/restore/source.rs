//! The files of a backup chain as one source: their bytes follow each other, oldest file first.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use stream::error::{SourceError, SourceErrorKind};
use stream::source::{Source, SourceBody};

/// A file of a backup chain.
pub struct ChainFile {
    /// The name of the file without directories. The backing file name of the next file must equal
    /// it, if there is one.
    pub name: String,
    /// The directory of the file, if its name states when the backup was made.
    pub folder: Option<DatedFolder>,
    /// The bytes. The source must know their number and support ranges.
    pub source: Box<dyn Source>,
}

/// A directory whose name states when the backup in it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatedFolder {
    /// The path, the same for all files in it.
    pub path: PathBuf,
    /// The time, as text that sorts by time.
    pub created: String,
}

/// The files of a backup chain, oldest first, as one source.
pub struct ChainSource {
    files: Arc<[PlacedFile]>,
}

/// A file, and the range of the whole source that it occupies.
struct PlacedFile {
    file: ChainFile,
    range: Range<u64>,
}

impl ChainSource {
    /// Concatenates the files. Fails if a file has no ranges or no known length.
    pub fn new(files: Vec<ChainFile>) -> Result<Self, SourceError> {
        let mut at = 0u64;
        let mut placed = Vec::with_capacity(files.len());
        for file in files {
            let length = file.source.total_bytes().filter(|_| file.source.is_ranged());
            let Some(end) = length.and_then(|length| at.checked_add(length)) else {
                let name = file.source.name();
                let message = format!(
                    "cannot restore from {name}: the maps of all backups are read first, so each must be a regular file or a block device"
                );
                return Err(SourceError::new(SourceErrorKind::Invalid, message));
            };
            placed.push(PlacedFile { file, range: at..end });
            at = end;
        }
        Ok(Self { files: placed.into() })
    }

    /// Returns the number of files.
    pub(super) fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Returns the files with the ranges that they occupy, oldest first.
    pub(super) fn placed_files(&self) -> impl Iterator<Item = (&ChainFile, Range<u64>)> {
        self.files.iter().map(|placed| (&placed.file, placed.range.clone()))
    }
}

/// Returns the index of the file that contains `offset`, or the number of files at the end.
fn index_at(files: &[PlacedFile], offset: u64) -> usize {
    files.partition_point(|placed| placed.range.end <= offset)
}

impl Source for ChainSource {
    fn name(&self) -> String {
        match (self.files.first(), self.files.last()) {
            (Some(first), Some(last)) => {
                format!("{} to {}", first.file.source.name(), last.file.source.name())
            }
            _ => "no files".to_owned(),
        }
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.files.last().map_or(0, |placed| placed.range.end))
    }

    fn is_ranged(&self) -> bool {
        true
    }

    fn has_own_digest(&self) -> bool {
        self.files.iter().any(|placed| placed.file.source.has_own_digest())
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        Ok(Box::new(ChainBody { files: Arc::clone(&self.files), index: 0, body: None }))
    }

    /// Reads `range`, which must lie within one file.
    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        match self.files.get(index_at(&self.files, range.start)) {
            Some(PlacedFile { file, range: own }) => {
                file.source.read_range(range.start - own.start..range.end.saturating_sub(own.start))
            }
            None => Ok(Bytes::new()),
        }
    }
}

/// The body of a chain. Only one file is being read at a time.
struct ChainBody {
    files: Arc<[PlacedFile]>,
    index: usize,
    /// The body of the current file, once it was opened.
    body: Option<Box<dyn SourceBody>>,
}

impl ChainBody {
    /// Returns the body of the current file and the offset of the file; `None` after the last file.
    fn current_body(&mut self) -> Result<Option<(&mut dyn SourceBody, u64)>, SourceError> {
        let Some(placed) = self.files.get(self.index) else {
            return Ok(None);
        };
        let body = match &mut self.body {
            Some(body) => body,
            none => none.insert(placed.file.source.open_body()?),
        };
        Ok(Some((&mut **body, placed.range.start)))
    }
}

impl SourceBody for ChainBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        while let Some((body, _)) = self.current_body()? {
            if let Some(chunk) = body.next_chunk()? {
                return Ok(Some(chunk));
            }
            self.index += 1;
            self.body = None;
        }
        Ok(None)
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let index = index_at(&self.files, offset);
        if index > self.index {
            self.index = index;
            self.body = None;
        }
        match self.current_body()? {
            Some((body, start)) => body.skip_to(offset.saturating_sub(start)),
            None => Ok(()),
        }
    }
}
