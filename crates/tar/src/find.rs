//! Finds one file of an archive while the archive is read.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::error::Error;

use super::entries::{TarEntry, TarEntryKind, TarReader};
use super::expanded::ExpandedFile;

/// Decides which file of an archive is wanted.
pub trait MemberSearch: Send {
    /// Inspects `entry`, the current entry of `archive`, and returns true if it is the wanted file.
    /// Entries after the wanted file are inspected as well, since any of them may make the search
    /// fail, but no second file is taken.
    fn inspect_member(&mut self, entry: &TarEntry, archive: &mut TarReader) -> Result<bool, Error>;

    /// Inspects the next bytes of the wanted file.
    fn inspect_bytes(&mut self, _bytes: &Bytes) {}

    /// Called at the end of an archive with the wanted file.
    fn end_search(&mut self, _archive: &TarReader) -> Result<(), Error> {
        Ok(())
    }
}

/// Result of [`find_file`].
pub enum SearchResult<S> {
    /// The wanted file, positioned at its first byte.
    File(Box<ArchivedFile<S>>),
    /// The archive was read to its end without finding a file that `search` wanted.
    Nothing {
        /// The search, in the state after the last entry.
        search: S,
        /// The archive, for errors about it.
        archive: Box<TarReader>,
    },
}

/// A file of an archive, with its holes filled with zeros. The end of the stream is reported only
/// after the rest of the archive was read.
pub struct ArchivedFile<S> {
    file: ExpandedFile,
    pub(super) search: S,
    ended: bool,
}

/// Reads the tar in `stream` up to the data of the file that `search` wants.
pub fn find_file<S: MemberSearch>(
    stream: Box<dyn ChunkStream>,
    mut search: S,
) -> Result<SearchResult<S>, Error> {
    let mut archive = TarReader::new(stream);
    while let Some(entry) = archive.next_entry()? {
        let wanted = search.inspect_member(&entry, &mut archive)?;
        if let TarEntryKind::File { size, .. } = entry.kind
            && wanted
        {
            let file = ExpandedFile::new(archive, size);
            return Ok(SearchResult::File(Box::new(ArchivedFile { file, search, ended: false })));
        }
    }
    archive.drain_stream()?;
    Ok(SearchResult::Nothing { search, archive: Box::new(archive) })
}

impl<S: MemberSearch> ArchivedFile<S> {
    /// The size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads the rest of the archive and lets the search inspect its entries.
    fn drain_archive(&mut self) -> Result<(), Error> {
        let archive = &mut self.file.entries;
        while let Some(entry) = archive.next_entry()? {
            self.search.inspect_member(&entry, archive)?;
        }
        archive.drain_stream()?;
        self.search.end_search(archive)?;
        self.ended = true;
        Ok(())
    }
}

impl<S: MemberSearch> ChunkStream for ArchivedFile<S> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ended {
            return Ok(None);
        }
        let Some(bytes) = self.file.next_chunk()? else {
            return self.drain_archive().map(|()| None);
        };
        self.search.inspect_bytes(&bytes);
        Ok(Some(bytes))
    }
}
