//! Finds one file of an archive while the archive is read.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::error::Error;
use stream::zeros::ZEROS;

use super::entries::{TarEntry, TarEntryKind, TarReader};

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

/// A file of an archive. Its holes are returned as slices of a shared block of zeros, so no memory
/// is allocated for them. The end of the stream is reported only after the rest of the archive was
/// read.
pub struct ArchivedFile<S> {
    archive: TarReader,
    pub(super) search: S,
    size: u64,
    position: u64,
    /// Offset and content of stored bytes that were read but follow a hole not yet returned.
    waiting: Option<(u64, Bytes)>,
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
            let (position, waiting, ended) = (0, None, false);
            let file = ArchivedFile { archive, search, size, position, waiting, ended };
            return Ok(SearchResult::File(Box::new(file)));
        }
    }
    archive.drain_stream()?;
    Ok(SearchResult::Nothing { search, archive: Box::new(archive) })
}

impl<S: MemberSearch> ArchivedFile<S> {
    /// The size of the file in bytes, holes included.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the next bytes of the file, or `None` at its end.
    fn next_bytes(&mut self) -> Result<Option<Bytes>, Error> {
        if self.waiting.is_none() {
            self.waiting = self.archive.next_data()?;
        }
        let hole_end = self.waiting.as_ref().map_or(self.size, |(offset, _)| *offset);
        let bytes = if self.position < hole_end {
            let hole = usize::try_from(hole_end - self.position).unwrap_or(usize::MAX);
            Some(Bytes::from_static(&ZEROS[..hole.min(ZEROS.len())]))
        } else {
            self.waiting.take().map(|(_, bytes)| bytes)
        };
        self.position += bytes.as_ref().map_or(0, Bytes::len) as u64;
        Ok(bytes)
    }

    /// Reads the rest of the archive and lets the search inspect its entries.
    fn drain_archive(&mut self) -> Result<(), Error> {
        let archive = &mut self.archive;
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
        let Some(bytes) = self.next_bytes()? else {
            return self.drain_archive().map(|()| None);
        };
        self.search.inspect_bytes(&bytes);
        Ok(Some(bytes))
    }
}
