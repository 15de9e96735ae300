//! Locates the files of an archive that supports random access. Only headers are read.

use std::fs::File;
use std::io;

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::error::{ArchiveErrorKind, Error, SourceError, SourceErrorKind, errno_text};
use stream::local::read_at;

use super::entries::{TarEntryKind, TarReader};
use super::header::BLOCK_BYTES;

/// Bytes per read: enough for a header and the pax header that may come before it.
const READ_BYTES: usize = 4096;

/// Limit on the number of wanted files of one archive.
const MAX_PLACES: u64 = 1 << 16;

/// A file of an archive that is stored contiguously.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberLocation {
    /// The name as stored in the archive.
    pub name: Vec<u8>,
    /// Offset of the first byte in the archive.
    pub offset: u64,
    /// Size of the file in bytes.
    pub size: u64,
}

/// Lists the files of the uncompressed tar in `file` whose names `wanted` accepts. Sparse files
/// are left out, because they are not stored contiguously. The archive ends at its end mark, or at
/// the end of the file.
pub fn index_archive(
    file: &File,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<MemberLocation>, Error> {
    let mut places = Vec::new();
    let mut at = 0;
    loop {
        // A new reader is created for each entry, as if it were the first one. Bytes between two
        // headers are therefore never read.
        let headers =
            FileChunks { file: file.try_clone().map_err(|error| read_error(&error))?, at };
        let mut entries = TarReader::new(Box::new(headers));
        if at > 0 && entries.cursor.fill_buffer()?.is_empty() {
            return Ok(places);
        }
        let Some(entry) = entries.next_entry()? else {
            return Ok(places);
        };
        let offset = at + entries.cursor.offset();
        let stored = match entry.kind {
            TarEntryKind::File { stored, .. } => stored,
            _ => 0,
        };
        let end = offset.checked_add(stored);
        let end = end.and_then(|end| end.checked_next_multiple_of(BLOCK_BYTES as u64));
        if let TarEntryKind::File { size, is_sparse: false, .. } = entry.kind
            && wanted(&entry.name)
        {
            let count = places.len() as u64 + 1;
            entries.locate_error(ArchiveErrorKind::check_limit(
                "a number of files",
                count,
                MAX_PLACES,
            ))?;
            let name = entry.name;
            places.push(MemberLocation { name, offset, size });
        }
        at = end.ok_or_else(|| entries.truncated_error(stored))?;
    }
}

/// Reads a file sequentially from the offset `at`, `READ_BYTES` at a time.
struct FileChunks {
    file: File,
    at: u64,
}

impl ChunkStream for FileChunks {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let mut bytes = vec![0; READ_BYTES];
        let read = read_at(&self.file, &mut bytes, self.at).map_err(|error| read_error(&error))?;
        bytes.truncate(read);
        self.at += read as u64;
        Ok((read > 0).then(|| bytes.into()))
    }
}

fn read_error(error: &io::Error) -> Error {
    let message = format!("read the archive: {}", errno_text(error));
    SourceError::new(SourceErrorKind::Io, message).into()
}

#[cfg(test)]
mod tests {
    use stream::local::read_exact_at;

    use super::*;

    #[test]
    fn index_finds_files_with_long_names_in_gnu_and_pax_archives() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let long = "n".repeat(150);
        std::fs::create_dir(path("blobs")).unwrap();
        std::fs::write(path("blobs/first"), vec![1; 1_000_000]).unwrap();
        std::fs::write(path(&format!("blobs/{long}")), b"long").unwrap();
        std::fs::write(path("other"), b"other").unwrap();
        for format in ["gnu", "pax"] {
            let [root, archive] = [folder.path().to_owned(), path("archive.tar")]
                .map(|path| path.display().to_string());
            let flags = ["--format", format, "-C", &root, "--sort=name", "-cf", &archive];
            testkit::tools::run("tar", flags.into_iter().chain(["blobs", "other"]));
            let archive = File::open(path("archive.tar")).unwrap();
            let places = index_archive(&archive, |name| name.starts_with(b"blobs/")).unwrap();
            let found: Vec<_> = places.iter().map(|place| (&place.name[..], place.size)).collect();
            let long = format!("blobs/{long}");
            assert_eq!(found, [(&b"blobs/first"[..], 1_000_000), (long.as_bytes(), 4)]);
            let mut text = [0; 4];
            read_exact_at(&archive, &mut text, places[1].offset).unwrap();
            assert_eq!(&text, b"long");
        }
    }

    #[test]
    fn a_truncated_archive_is_refused() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[7; 700]).unwrap();
        assert!(index_archive(&file, |_| true).is_err());
        file.set_len(0).unwrap();
        assert!(index_archive(&file, |_| true).is_err());
    }
}
