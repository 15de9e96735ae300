//! One file of an archive, found as the archive passes.

use bytes::Bytes;

use super::entries::{TarEntryKind, TarReader};
use super::expanded::ExpandedFile;
use crate::chunks::ChunkStream;
use crate::error::Error;

/// An entry, as a [`MemberSearch`] sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveMember<'a> {
    /// As it is in the archive: any bytes, with or without `./` before it.
    pub name: &'a [u8],
    /// Its kind.
    pub kind: MemberKind<'a>,
}

/// The kind of a [`ArchiveMember`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind<'a> {
    /// A regular file.
    File {
        /// Bytes of the file, holes included.
        size: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link, and what it names.
    Symlink(&'a [u8]),
    /// Another name of the file that is named.
    HardLink(&'a [u8]),
    /// A device or a named pipe, in words.
    Special(&'static str),
}

/// Decides which file is wanted.
pub trait MemberSearch: Send {
    /// Looks at the next entry: true for the wanted file. The entries behind it are shown as well, and may still be a
    /// reason to refuse the archive; no second file is taken.
    fn inspect_member(&mut self, member: ArchiveMember<'_>) -> Result<bool, Error>;
}

/// Result of [`find_file`].
pub enum SearchResult<S> {
    /// The file, at its first byte.
    File(Box<ArchivedFile<S>>),
    /// The archive was read to its end, and `search` wanted none of its files.
    Nothing {
        /// The search, with all that it has learned.
        search: S,
    },
}

/// A file of an archive, expanded. Its end is reported when the rest of the archive was read.
pub struct ArchivedFile<S> {
    file: ExpandedFile,
    search: S,
    ended: bool,
}

/// Reads the tar `stream` up to the data of the file that `search` wants.
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
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.file.size()
    }

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
