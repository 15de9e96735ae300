//! The last resort for parked clusters (rung D of the ladder in `park`): a file in a directory
//! that the user chose. It disappears as soon as it is closed.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use stream::error::TargetError;

use crate::unnamed_file::create_unnamed;

/// Stores parked clusters one after the other.
pub(super) struct ScratchFile {
    dir: PathBuf,
    file: File,
    end: u64,
}

impl ScratchFile {
    pub(super) fn open(dir: &Path) -> Result<Self, TargetError> {
        let file = create_unnamed(dir)?;
        Ok(Self { dir: dir.to_owned(), file, end: 0 })
    }

    /// Stores a cluster. Returns the range of the file that contains it.
    pub(super) fn append_cluster(&mut self, bytes: &[u8]) -> Result<Range<u64>, TargetError> {
        self.file
            .write_all_at(bytes, self.end)
            .map_err(|source| TargetError::new("write scratch file in", &self.dir, source))?;
        let start = self.end;
        self.end += bytes.len() as u64;
        Ok(start..self.end)
    }

    pub(super) fn read_cluster(&self, range: Range<u64>) -> Result<Bytes, TargetError> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        self.file
            .read_exact_at(&mut bytes, range.start)
            .map_err(|source| TargetError::new("read scratch file in", &self.dir, source))?;
        Ok(bytes.into())
    }
}
