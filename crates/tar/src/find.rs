//! Finds one file of an archive while the archive is read.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::error::Error;

use super::entries::{TarEntryKind, TarReader};
use super::expanded::ExpandedFile;

/// An entry of an archive, as passed to a [`MemberSearch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveMember<'a> {
    /// The name as stored in the archive: arbitrary bytes, with or without a leading `./`.
    pub name: &'a [u8],
    /// The kind of the entry.
    pub kind: MemberKind<'a>,
}

/// The kind of an [`ArchiveMember`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind<'a> {
    /// A regular file.
    File {
        /// Size of the file in bytes, holes included.
        size: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Symlink(&'a [u8]),
    /// A hard link to the named file.
    HardLink(&'a [u8]),
    /// A device or a named pipe, described in words for messages.
    Special(&'static str),
}

/// Decides which file of an archive is wanted.
pub trait MemberSearch: Send {
    /// Inspects the next entry, and returns true if it is the wanted file. Entries after the
    /// wanted file are inspected as well, since any of them may make the search fail, but no
    /// second file is taken.
    fn inspect_member(&mut self, member: ArchiveMember<'_>) -> Result<bool, Error>;
}

/// Result of [`find_file`].
pub enum SearchResult<S> {
    /// The wanted file, positioned at its first byte.
    File(Box<ArchivedFile<S>>),
    /// The archive was read to its end without finding a file that `search` wanted.
    Nothing {
        /// The search, in the state after the last entry.
        search: S,
    },
}

/// A file of an archive, with its holes filled with zeros. The end of the stream is reported only
/// after the rest of the archive was read.
pub struct ArchivedFile<S> {
    file: ExpandedFile,
    search: S,
    ended: bool,
}

/// Reads the tar in `stream` up to the data of the file that `search` wants.
pub fn find_file<S: MemberSearch>(
    stream: Box<dyn ChunkStream>,
    mut search: S,
) -> Result<SearchResult<S>, Error> {
    let mut entries = TarReader::new(stream);
    while let Some(entry) = entries.next_entry()? {
        let kind = member_kind(&entry.kind);
        let name = &entry.name;
        let wanted = search.inspect_member(ArchiveMember { name, kind })?;
        if let TarEntryKind::File { size, .. } = entry.kind
            && wanted
        {
            let file = ExpandedFile::new(entries, size);
            let ended = false;
            let found = ArchivedFile { file, search, ended };
            return Ok(SearchResult::File(Box::new(found)));
        }
    }
    entries.drain_stream()?;
    Ok(SearchResult::Nothing { search })
}

impl<S: MemberSearch> ArchivedFile<S> {
    /// The size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    /// Reads the rest of the archive and lets the search inspect its entries.
    fn drain_archive(&mut self) -> Result<(), Error> {
        while let Some(entry) = self.file.entries.next_entry()? {
            let kind = member_kind(&entry.kind);
            let name = &entry.name;
            self.search.inspect_member(ArchiveMember { name, kind })?;
        }
        self.file.entries.drain_stream()?;
        self.ended = true;
        Ok(())
    }
}

impl<S: MemberSearch> ChunkStream for ArchivedFile<S> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ended {
            return Ok(None);
        }
        match self.file.next_chunk()? {
            Some(bytes) => Ok(Some(bytes)),
            None => self.drain_archive().map(|()| None),
        }
    }
}

fn member_kind(kind: &TarEntryKind) -> MemberKind<'_> {
    match kind {
        TarEntryKind::File { size, .. } => MemberKind::File { size: *size },
        TarEntryKind::Directory => MemberKind::Directory,
        TarEntryKind::Symlink(target) => MemberKind::Symlink(target),
        TarEntryKind::HardLink(target) => MemberKind::HardLink(target),
        TarEntryKind::Fifo => MemberKind::Special("a named pipe"),
        TarEntryKind::Special(what) => MemberKind::Special(what),
    }
}
