//! Reads the entries of a tar from a stream.
//!
//! Existing tar readers are not used, because they read names of any length into memory and do not
//! support sparse files. As with GNU tar, an archive may end between two entries without its
//! two blocks of zeros; that is logged as a warning. Any other truncation is an error. The source
//! is always read to its end, since decoders and the length are verified only there.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::cursor::ChunkCursor;
use stream::error::{ArchiveError, ArchiveErrorKind, DecodeError, Error, FormatError};
use stream::zeros::is_zero;

use super::header::{BLOCK_BYTES, Block, TarHeader};
use super::name::{PATH_MAX_BYTES, printable_name};
use super::number::TarTimestamp;
use super::pax::{PaxRecords, SparseMapLocation};
use super::sparse::SparseLayout;

/// Limit on the extended headers of one entry, in bytes. Go's reader has the same limit. Larger
/// headers occur only with sparse maps in the old pax formats (0.0 and 0.1) that list about ten
/// thousand regions or more.
const MAX_PAX_BYTES: u64 = 1 << 20;

/// Limit on the bytes of an archive outside the wanted file: headers, other files, and data after
/// the end. In a container image that contains an operating system beside its disk, these are a
/// few GiB. Reading up to the limit takes a minute or two.
const MAX_BESIDE_BYTES: u64 = 64 << 30;

/// An entry without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarEntry {
    /// The name as stored in the archive.
    pub name: Vec<u8>,
    /// The kind, with what only this kind has.
    pub kind: TarEntryKind,
    /// Permissions, setuid, setgid and sticky bit: the twelve bits that `chmod` accepts.
    pub mode: u32,
    /// When the data was last changed.
    pub mtime: TarTimestamp,
}

/// The kind of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TarEntryKind {
    /// A regular file.
    File {
        /// Size of the file in bytes, holes included.
        size: u64,
        /// Bytes of the file that are stored in the archive. Exactly these are written.
        stored: u64,
        /// True for a sparse file: the bytes that are not stored are holes.
        is_sparse: bool,
    },
    /// A directory.
    Directory,
    /// A symbolic link to this path.
    Symlink(Vec<u8>),
    /// A second name for the entry with this name.
    HardLink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A device, described in words for messages.
    Special(&'static str),
}

/// Headers that come before the header of an entry and describe it further.
#[derive(Default)]
struct ExtendedHeaders {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Vec<u8>,
    /// True once such a header was read. An entry has to follow it.
    pending: bool,
}

/// Reads a tar, entry by entry.
pub struct TarReader {
    pub(super) cursor: ChunkCursor,
    global: PaxRecords,
    /// Offset of the current header in the archive. Errors report it together with `name`.
    at: u64,
    name: Option<Vec<u8>>,
    layout: SparseLayout,
    padding: u64,
    has_entries: bool,
    /// Bytes of file data that were returned to the caller.
    taken: u64,
}

impl TarReader {
    /// Creates a reader of the tar in `stream`.
    pub fn new(stream: Box<dyn ChunkStream>) -> Self {
        Self {
            cursor: ChunkCursor::new(stream),
            global: PaxRecords::default(),
            at: 0,
            name: None,
            layout: SparseLayout::without_holes(0),
            padding: 0,
            has_entries: false,
            taken: 0,
        }
    }

    /// Returns the next entry, or `None` at the end of the archive. Data of the previous entry
    /// that was not read is skipped.
    pub fn next_entry(&mut self) -> Result<Option<TarEntry>, Error> {
        self.skip_data()?;
        let mut extended = ExtendedHeaders::default();
        loop {
            self.check_worth()?;
            self.at = self.cursor.offset();
            self.name = None;
            let Some(block) = self.next_header()? else {
                if extended.pending {
                    let what = "it ends after a long name or pax header".to_owned();
                    return Err(self.entry_error(ArchiveErrorKind::Truncated(what)));
                }
                return Ok(None);
            };
            let header = match TarHeader::parse(&block) {
                Ok(header) => header,
                // A damaged first header cannot be distinguished from a file that is not a tar.
                // The latter is far more frequent: a wrong URL or content type.
                Err(_) if self.at == 0 => return Err(self.entry_error(ArchiveErrorKind::NotTar)),
                Err(kind) => return Err(self.entry_error(kind)),
            };
            if !self.add_extended_header(&mut extended, &header)? {
                self.has_entries = true;
                return self.build_entry(&header, extended).map(Some);
            }
        }
    }

    /// If the header only describes other entries, processes it and returns true. If it is an
    /// entry, returns false without reading any further.
    fn add_extended_header(
        &mut self,
        extended: &mut ExtendedHeaders,
        header: &TarHeader<'_>,
    ) -> Result<bool, Error> {
        match header.type_flag() {
            b'L' => extended.long_name = Some(self.long_name(header)?),
            b'K' => extended.long_link = Some(self.long_name(header)?),
            // Solaris used `X` before the format was standardised.
            b'x' | b'X' => {
                // Several headers may describe one entry, so the limit counts them together.
                let most = MAX_PAX_BYTES - extended.pax.len() as u64;
                let records = self.read_contents(header, "an extended header in bytes", most)?;
                extended.pax.extend(records);
            }
            b'g' => {
                let records =
                    self.read_contents(header, "an extended header in bytes", MAX_PAX_BYTES)?;
                let read = self.global.read_records(&records);
                self.locate_error(read)?;
                return Ok(true);
            }
            // A volume label describes no entry, so it is skipped.
            b'V' => return Ok(true),
            _ => return Ok(false),
        }
        extended.pending = true;
        Ok(true)
    }

    /// Builds an entry from its header and extended headers. The name is the first of these that
    /// is present: `GNU.sparse.name`, the pax `path`, a GNU long name, the name in the header.
    fn build_entry(
        &mut self,
        header: &TarHeader<'_>,
        extended: ExtendedHeaders,
    ) -> Result<TarEntry, Error> {
        let mut pax = self.global.inherited_records();
        self.locate_error(pax.read_records(&extended.pax))?;
        let sparse_name = pax.sparse.name.take();
        let name =
            sparse_name.or(pax.path.take()).or(extended.long_name).unwrap_or_else(|| header.name());
        self.name = Some(name.clone());
        let link = pax.link_path.take().or(extended.long_link);
        let link = move || link.unwrap_or_else(|| header.link_name());
        let mode = self.locate_error(header.mode())?;
        let mtime = match pax.mtime {
            Some(mtime) => mtime,
            None => TarTimestamp { seconds: self.locate_error(header.mtime())?, nanoseconds: 0 },
        };
        // Only files have data. The size field of other entries is ignored, as the standard
        // requires (ustar, "size").
        self.set_data(SparseLayout::without_holes(0), 0);
        let kind = match header.type_flag() {
            // Before tar had type flags, a directory was an entry whose name ends with a slash.
            0 | b'0' | b'7' if name.ends_with(b"/") => match self.entry_size(header, &pax)? {
                0 => TarEntryKind::Directory,
                _ => {
                    let kind = ArchiveErrorKind::Name(
                        "ends with a slash, which is only valid for a directory, but the entry has data",
                    );
                    return Err(self.entry_error(kind));
                }
            },
            // A contiguous file (7) is read as a regular one, which POSIX allows where the system
            // has no such files (pax, "typeflag").
            0 | b'0' | b'7' => self.read_file_entry(header, pax)?,
            b'S' if header.is_old_gnu() => self.old_sparse_file(header, &pax)?,
            b'1' => TarEntryKind::HardLink(link()),
            b'2' => TarEntryKind::Symlink(link()),
            b'3' => TarEntryKind::Special("a character device"),
            b'4' => TarEntryKind::Special("a block device"),
            b'5' => TarEntryKind::Directory,
            // A directory of an incremental archive (`tar -g`), followed by the names that it had.
            b'D' => {
                let size = self.entry_size(header, &pax)?;
                self.set_data(SparseLayout::without_holes(size), size);
                TarEntryKind::Directory
            }
            b'6' => TarEntryKind::Fifo,
            other => {
                // POSIX suggests extracting an unknown type as a regular file. The result would
                // differ from what was sent, so it is an error here.
                let what = format!("entries of type `{}` are not supported", other.escape_ascii());
                return Err(self.entry_error(unsupported_error(&what)));
            }
        };
        Ok(TarEntry { name, kind, mode, mtime })
    }

    /// Begins a file entry, sparse or not, according to its pax records.
    fn read_file_entry(
        &mut self,
        header: &TarHeader<'_>,
        pax: PaxRecords,
    ) -> Result<TarEntryKind, Error> {
        let size = self.entry_size(header, &pax)?;
        match self.locate_error(pax.sparse.map_location())? {
            SparseMapLocation::None => {
                self.set_data(SparseLayout::without_holes(size), size);
                Ok(TarEntryKind::File { size, stored: size, is_sparse: false })
            }
            SparseMapLocation::Records => {
                self.sparse_file(pax.sparse.regions, pax.sparse.size, size, size)
            }
            SparseMapLocation::Data => self.file_with_map_before_data(pax.sparse.size, size),
        }
    }

    /// Returns the next stored bytes of the current entry and their offset in the file, or `None`
    /// at the end of the entry.
    pub fn next_data(&mut self) -> Result<Option<(u64, Bytes)>, Error> {
        let data = self.read_data()?;
        self.taken += data.as_ref().map_or(0, |(_, bytes)| bytes.len()) as u64;
        Ok(data)
    }

    /// Fails once more than `MAX_BESIDE_BYTES` were read outside the wanted files, because such an
    /// archive may never end.
    fn check_worth(&self) -> Result<(), Error> {
        let passed = self.cursor.offset() - self.taken;
        if passed > MAX_BESIDE_BYTES {
            return Err(self.entry_error(ArchiveErrorKind::Refused(format!(
                "{passed} bytes of the archive belong to files that are not needed: it may be endless; unpack it and send the files"
            ))));
        }
        Ok(())
    }

    fn read_data(&mut self) -> Result<Option<(u64, Bytes)>, Error> {
        let Some((offset, left)) = self.layout.next_range() else {
            return Ok(None);
        };
        let bytes = self.cursor.take_bytes(left)?;
        if bytes.is_empty() {
            return Err(self.truncated_error(left));
        }
        self.layout.advance(bytes.len() as u64);
        Ok(Some((offset, bytes)))
    }

    /// Reads to the end of the stream, where decoders verify their checksums. As with GNU tar,
    /// data after the end of an archive is ignored. Without any entry, however, only zeros are
    /// accepted: other data that merely begins with zeros is not a tar.
    pub fn drain_stream(&mut self) -> Result<(), Error> {
        loop {
            let bytes = self.cursor.take_bytes(u64::MAX)?;
            if bytes.is_empty() {
                return Ok(());
            }
            self.check_worth()?;
            if !self.has_entries && !is_zero(&bytes) {
                return Err(self.entry_error(ArchiveErrorKind::NotTar));
            }
        }
    }

    /// Returns the error `kind` for the current entry, with its offset and name.
    pub fn entry_error(&self, kind: ArchiveErrorKind) -> Error {
        let error =
            ArchiveError { kind, offset: self.at, entry: self.name.as_deref().map(printable_name) };
        FormatError::Archive(error).into()
    }

    pub(super) fn locate_error<T>(&self, outcome: Result<T, ArchiveErrorKind>) -> Result<T, Error> {
        outcome.map_err(|kind| self.entry_error(kind))
    }

    pub(super) fn truncated_error(&self, missing: u64) -> Error {
        let what = format!("{missing} more bytes should follow");
        self.entry_error(ArchiveErrorKind::Truncated(what))
    }

    pub(super) fn entry_size(
        &self,
        header: &TarHeader<'_>,
        pax: &PaxRecords,
    ) -> Result<u64, Error> {
        match pax.size {
            Some(size) => Ok(size),
            None => self.locate_error(header.size()),
        }
    }

    /// Begins the data of an entry. The data occupies `in_archive` bytes of the archive, which
    /// determines its padding. `layout` describes the part that is still to be read.
    pub(super) fn set_data(&mut self, layout: SparseLayout, in_archive: u64) {
        let blocks = BLOCK_BYTES as u64;
        self.padding = (blocks - in_archive % blocks) % blocks;
        self.layout = layout;
    }

    fn skip_data(&mut self) -> Result<(), Error> {
        while self.read_data()?.is_some() {
            self.check_worth()?;
        }
        let padding = std::mem::take(&mut self.padding);
        self.skip_bytes(padding)
    }

    pub(super) fn skip_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        let mut left = bytes;
        while left > 0 {
            let skipped = self.cursor.take_bytes(left)?.len() as u64;
            if skipped == 0 {
                return Err(self.truncated_error(left));
            }
            left -= skipped;
        }
        Ok(())
    }

    /// Returns the next header, or `None` at the end of the archive: after a block of zeros, which
    /// should be followed by a second one, or if the stream ends between two entries.
    fn next_header(&mut self) -> Result<Option<Block>, Error> {
        if self.cursor.fill_buffer()?.is_empty() {
            return self.end_without_mark();
        }
        let block = match self.read_block() {
            Err(Error::Format(_)) if self.at == 0 => {
                return Err(self.entry_error(ArchiveErrorKind::NotTar));
            }
            other => other?,
        };
        if !is_zero(&block) {
            return Ok(Some(block));
        }
        if self.cursor.fill_buffer()?.is_empty() {
            return self.end_without_mark();
        }
        if !is_zero(&self.read_block()?) {
            if !self.has_entries {
                return Err(self.entry_error(ArchiveErrorKind::NotTar));
            }
            // GNU tar also ends there, with a warning.
            tracing::warn!(
                "the archive ends with a single zero block, and what follows is ignored"
            );
        }
        Ok(None)
    }

    /// Accepts the end of a stream without the two blocks of zeros and logs a warning. An empty
    /// stream is an error.
    fn end_without_mark(&self) -> Result<Option<Block>, Error> {
        if self.cursor.offset() == 0 {
            return Err(DecodeError::Empty.into());
        }
        tracing::warn!("the archive ends without the two zero blocks that mark its end");
        Ok(None)
    }

    pub(super) fn read_block(&mut self) -> Result<Block, Error> {
        let head = self.cursor.peek_bytes(BLOCK_BYTES)?;
        let Some(block) = head.first_chunk().copied() else {
            let missing = BLOCK_BYTES - head.len();
            return Err(self.truncated_error(missing as u64));
        };
        self.cursor.consume(BLOCK_BYTES);
        Ok(block)
    }

    /// Reads the data of a GNU tar header that contains a long name. The name ends with a NUL,
    /// which is removed.
    fn long_name(&mut self, header: &TarHeader<'_>) -> Result<Vec<u8>, Error> {
        let mut name = self.read_contents(header, "a name in bytes", PATH_MAX_BYTES as u64)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    /// Reads the data of a header that describes another entry.
    fn read_contents(
        &mut self,
        header: &TarHeader<'_>,
        what: &'static str,
        limit: u64,
    ) -> Result<Vec<u8>, Error> {
        let size = self.locate_error(header.size())?;
        self.locate_error(ArchiveErrorKind::check_limit(what, size, limit))?;
        self.set_data(SparseLayout::without_holes(size), size);
        let mut contents = Vec::new();
        while let Some((_, bytes)) = self.read_data()? {
            contents.extend_from_slice(&bytes);
        }
        self.skip_data()?;
        Ok(contents)
    }
}

/// The error for an entry that is `what`.
pub fn unsupported_error(what: &str) -> ArchiveErrorKind {
    ArchiveErrorKind::Refused(format!("{what}: archive regular files, directories and links only"))
}
