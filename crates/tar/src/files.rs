//! Reads the files of an archive one after the other.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::error::Error;

use super::entries::{TarEntryKind, TarReader};

/// The files of an uncompressed tar, each as a stream of its bytes.
pub struct ArchiveFiles(TarReader);

impl ArchiveFiles {
    /// Reads the tar in `stream`.
    pub fn new(stream: Box<dyn ChunkStream>) -> Self {
        Self(TarReader::new(stream))
    }

    /// Returns the name and the size of the next regular file, and skips the rest of the current
    /// one. Sparse files are left out. Returns `None` at the end of the archive.
    pub fn next_file(&mut self) -> Result<Option<(Vec<u8>, u64)>, Error> {
        while let Some(entry) = self.0.next_entry()? {
            if let TarEntryKind::File { size, is_sparse: false, .. } = entry.kind {
                return Ok(Some((entry.name, size)));
            }
        }
        Ok(None)
    }
}

impl ChunkStream for ArchiveFiles {
    /// Returns the next bytes of the current file.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.0.next_data()?.map(|(_, bytes)| bytes))
    }
}
