//! One file of an archive, found as the archive passes.

use bytes::Bytes;

use super::entries::{Entries, Kind};
use super::expanded::Expanded;
use crate::chunks::Chunks;
use crate::error::Error;

/// An entry, as a [`Search`] sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// As it is in the archive: any bytes, with or without `./` before it.
    pub name: &'a [u8],
    /// Its kind.
    pub kind: MemberKind<'a>,
}

/// The kind of a [`Member`].
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
pub trait Search: Send {
    /// Looks at the next entry: true for the wanted file. The entries behind it are shown as well, and may still be a
    /// reason to refuse the archive; no second file is taken.
    fn look(&mut self, member: Member<'_>) -> Result<bool, Error>;
}

/// Result of [`find_file`].
pub enum Found<S> {
    /// The file, at its first byte.
    File(Box<FileInArchive<S>>),
    /// The archive was read to its end, and `search` wanted none of its files.
    Nothing {
        /// The search, with all that it has learned.
        search: S,
    },
}

/// A file of an archive, expanded. Its end is reported when the rest of the archive was read.
pub struct FileInArchive<S> {
    file: Expanded,
    search: S,
    ended: bool,
}

/// Reads the tar `stream` up to the data of the file that `search` wants.
pub fn find_file<S: Search>(stream: Box<dyn Chunks>, mut search: S) -> Result<Found<S>, Error> {
    let mut entries = Entries::new(stream);
    while let Some(entry) = entries.next_entry()? {
        let kind = member_kind(&entry.kind);
        let name = &entry.name;
        let wanted = search.look(Member { name, kind })?;
        if let Kind::File { size, .. } = entry.kind
            && wanted
        {
            let file = Expanded::new(entries, size);
            let ended = false;
            let found = FileInArchive { file, search, ended };
            return Ok(Found::File(Box::new(found)));
        }
    }
    entries.drain()?;
    Ok(Found::Nothing { search })
}

impl<S: Search> FileInArchive<S> {
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.file.size()
    }

    fn finish(&mut self) -> Result<(), Error> {
        while let Some(entry) = self.file.entries.next_entry()? {
            let kind = member_kind(&entry.kind);
            let name = &entry.name;
            self.search.look(Member { name, kind })?;
        }
        self.file.entries.drain()?;
        self.ended = true;
        Ok(())
    }
}

impl<S: Search> Chunks for FileInArchive<S> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.ended {
            return Ok(None);
        }
        match self.file.next_chunk()? {
            Some(bytes) => Ok(Some(bytes)),
            None => self.finish().map(|()| None),
        }
    }
}

fn member_kind(kind: &Kind) -> MemberKind<'_> {
    match kind {
        Kind::File { size, .. } => MemberKind::File { size: *size },
        Kind::Directory => MemberKind::Directory,
        Kind::Symlink(target) => MemberKind::Symlink(target),
        Kind::HardLink(target) => MemberKind::HardLink(target),
        Kind::Fifo => MemberKind::Special("a named pipe"),
        Kind::Special(what) => MemberKind::Special(what),
    }
}
