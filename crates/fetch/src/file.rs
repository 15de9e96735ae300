//! Local files, block devices and pipes as sources.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use stream::buffer::CHUNK_BYTES;
use stream::digest::Checksum;
use stream::error::{SourceError, SourceErrorKind};
use stream::local::{LocalExtent, LocalFile, LocalReader, is_block_device, open_seekable};
use stream::source::{Source, SourceBody};
use stream::storage::StorageLocation;
use stream::zeros::ZEROS;
use tokio_util::sync::CancellationToken;

use crate::engine::check_range;
use crate::error::{invalid_error, io_error};
use crate::pipe::{PipeBody, open_stdin};
use crate::scheme::find_scheme;
use crate::verified::VerifiedBody;

/// A file or a block device, which can be read at any offset, or a pipe, which can be read once.
pub struct FileSource {
    name: String,
    kind: FileKind,
    stop: CancellationToken,
    /// The expected digest of the whole file, and the list that it is from.
    expected: Option<(Checksum, String)>,
}

enum FileKind {
    /// A file or block device, which can be read at any offset.
    Local(Arc<LocalFile>),
    Pipe(Arc<File>),
}

impl FileSource {
    /// Opens `path` for reading; `-` is standard input. `stop` cancels a wait for a pipe.
    pub fn open(path: &Path, stop: CancellationToken) -> Result<Self, SourceError> {
        if path.as_os_str() == "-" {
            return Self::open_stdin(stop);
        }
        Self::open_with(path, stop, |path| File::open(path))
    }

    /// Opens `path`, which must be a regular file or a block device.
    pub fn open_seekable(path: &Path, stop: CancellationToken) -> Result<Self, SourceError> {
        Self::open_with(path, stop, open_seekable)
    }

    fn open_with(
        path: &Path,
        stop: CancellationToken,
        open_file: impl FnOnce(&Path) -> io::Result<File>,
    ) -> Result<Self, SourceError> {
        let name = path.display().to_string();
        let open = || -> io::Result<FileKind> {
            let file = open_file(path)?;
            let kind = file.metadata()?.file_type();
            if kind.is_dir() {
                return Err(io::Error::from(io::ErrorKind::IsADirectory));
            }
            Ok(if kind.is_file() || is_block_device(kind) {
                FileKind::Local(Arc::new(LocalFile::new(file)?))
            } else {
                FileKind::Pipe(Arc::new(file))
            })
        };
        let kind = open().map_err(|error| {
            let failure = io_error("open", &name, &error);
            let sentence = format!("{failure}; {}", opening_advice(&name, &error));
            failure.with_plain_words(&sentence)
        })?;
        Ok(Self { name, kind, stop, expected: None })
    }

    /// Makes the body fail at its end unless the whole file has the digest that `list` states.
    #[must_use]
    pub fn with_expected(self, expected: Checksum, list: String) -> Self {
        Self { expected: Some((expected, list)), ..self }
    }

    /// Reads the open regular file `file`, which messages call `path`.
    pub fn from_regular_file(file: File, path: &Path, stop: CancellationToken) -> io::Result<Self> {
        let kind = FileKind::Local(Arc::new(LocalFile::new(file)?));
        Ok(Self { name: path.display().to_string(), kind, stop, expected: None })
    }

    /// Opens standard input. Its length is treated as unknown, whatever it is connected to.
    fn open_stdin(stop: CancellationToken) -> Result<Self, SourceError> {
        let name = "standard input".to_owned();
        let file = open_stdin().map_err(|error| io_error("open", &name, &error))?;
        let kind = FileKind::Pipe(Arc::new(file));
        Ok(Self { name, kind, stop, expected: None })
    }
}

/// Returns advice about a path that cannot be opened.
fn opening_advice(path: &str, error: &io::Error) -> &'static str {
    let has_scheme = path.split_once(':').is_some_and(|(scheme, _)| find_scheme(scheme).is_some());
    match error.kind() {
        io::ErrorKind::NotFound if has_scheme => {
            "the address of a server has two slashes after the colon"
        }
        io::ErrorKind::NotFound if begins_like_a_host(path) => {
            "the address of a server begins with https://"
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "check the path",
        io::ErrorKind::IsADirectory => "name a file in it",
        io::ErrorKind::PermissionDenied => "is this user allowed to read it?",
        _ => "a source is a file, a block device or a pipe",
    }
}

/// True if the path looks like a URL without its scheme, such as `example.org/disk.qcow2`.
fn begins_like_a_host(path: &str) -> bool {
    let host = path.split_once('/').map(|(host, _)| host);
    host.is_some_and(|host| host.trim_matches('.').contains('.'))
}

impl Source for FileSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn total_bytes(&self) -> Option<u64> {
        match &self.kind {
            FileKind::Local(local) => Some(local.size()),
            FileKind::Pipe(_) => None,
        }
    }

    fn is_ranged(&self) -> bool {
        matches!(self.kind, FileKind::Local(_))
    }

    fn has_own_digest(&self) -> bool {
        self.expected.is_some()
    }

    fn storage_location(&self) -> Option<StorageLocation> {
        match &self.kind {
            FileKind::Local(local) => StorageLocation::from_file(local.as_file()),
            FileKind::Pipe(pipe) => StorageLocation::from_file(pipe),
        }
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let name = self.name.clone();
        let body: Box<dyn SourceBody> = match &self.kind {
            FileKind::Local(local) => Box::new(FileBody {
                name,
                reader: local.chunk_reader(CHUNK_BYTES),
                hole: 0,
                local: Arc::clone(local),
            }),
            FileKind::Pipe(pipe) => {
                Box::new(PipeBody::new(name, Arc::clone(pipe), self.stop.clone()))
            }
        };
        let Some((expected, list)) = &self.expected else {
            return Ok(body);
        };
        let what = format!("{} is not the file listed in the manifest {list}", self.name);
        let body = VerifiedBody::new(body, expected.clone(), what)?;
        Ok(Box::new(body.into_evidence()))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let length = self.total_bytes().unwrap_or(0);
        check_range(&range, length)?;
        let FileKind::Local(local) = &self.kind else {
            return Ok(Bytes::new());
        };
        match local.read_range(range) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(length_changed(&self.name, length, "fewer"))
            }
            Err(error) => Err(io_error("read", &self.name, &error)),
        }
    }
}

/// The body of a file or block device.
struct FileBody {
    name: String,
    local: Arc<LocalFile>,
    reader: LocalReader,
    /// Number of zeros before the reader's position that have not been returned yet.
    hole: u64,
}

impl FileBody {
    fn position(&self) -> u64 {
        self.reader.position() - self.hole
    }

    /// Returns the next zeros of the current hole.
    fn hole_zeros(&mut self) -> Bytes {
        let length = usize::try_from(self.hole).map_or(ZEROS.len(), |hole| hole.min(ZEROS.len()));
        self.hole -= length as u64;
        Bytes::from_static(&ZEROS[..length])
    }

    /// Fails if the length of the file has changed since it was opened: a file that was still
    /// being written is not the intended image. Holes are not read, so without this check a file
    /// that became shorter would look like one with a hole at its end.
    fn check_end(&self) -> Result<(), SourceError> {
        let length = self.local.size();
        let now = self.local.size_now();
        let now = now.map_err(|error| io_error("find the size of", &self.name, &error))?;
        match now.min(self.position()) {
            at if at < length => Err(length_changed(&self.name, length, "fewer")),
            _ if now > length => Err(length_changed(&self.name, length, "more")),
            _ => Ok(()),
        }
    }
}

impl SourceBody for FileBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.hole > 0 {
            return Ok(Some(self.hole_zeros()));
        }
        let part = self.reader.next_part();
        match part.map_err(|error| io_error("read", &self.name, &error))? {
            Some(LocalExtent::Data(bytes)) => Ok(Some(bytes)),
            Some(LocalExtent::Hole(bytes)) => {
                self.hole = bytes;
                Ok(Some(self.hole_zeros()))
            }
            None => self.check_end().map(|()| None),
        }
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let position = self.position();
        if offset < position || offset > self.local.size() {
            let name = &self.name;
            return Err(invalid_error(format!(
                "{name}: cannot skip from byte {position} to byte {offset}"
            )));
        }
        let end = self.reader.position();
        self.hole = end.saturating_sub(offset);
        self.reader.skip_to(offset.max(end));
        Ok(())
    }
}

fn length_changed(name: &str, length: u64, direction: &str) -> SourceError {
    let message =
        format!("{name} held {length} bytes when it was opened and holds {direction} now");
    SourceError::new(SourceErrorKind::Changed, message)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn read_all(body: &mut dyn SourceBody) -> Result<Vec<u8>, SourceError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = body.next_chunk()? {
            assert!(!chunk.is_empty());
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    #[test]
    fn a_file_is_read_in_order_and_at_random() {
        let bytes: Vec<u8> = (0..2_500_000u32).flat_map(u32::to_le_bytes).collect();
        let file = file(&bytes);
        let source = FileSource::open(file.path(), CancellationToken::new()).unwrap();
        assert_eq!((source.total_bytes(), source.is_ranged()), (Some(10_000_000), true));
        assert_eq!(read_all(&mut *source.open_body().unwrap()).unwrap(), bytes);
        assert_eq!(source.read_range(9_999_990..10_000_000).unwrap(), bytes[9_999_990..]);
        assert_eq!(source.read_range(5..5).unwrap().len(), 0);
        assert!(source.read_range(0..10_000_001).is_err());
        let mut body = source.open_body().unwrap();
        body.skip_to(9_999_999).unwrap();
        assert_eq!(read_all(&mut *body).unwrap(), bytes[9_999_999..]);
        assert!(body.skip_to(5).is_err());
    }

    #[test]
    fn holes_are_returned_as_shared_zeros_without_being_read() {
        let mut file = file(b"");
        file.as_file().set_len(64 << 20).unwrap();
        let written = [(10 << 20, 100_000), (20 << 20, 1), ((64 << 20) - 5, 5)];
        let mut expected = vec![0; 64 << 20];
        for (offset, length) in written {
            let data = vec![7; length];
            std::os::unix::fs::FileExt::write_all_at(file.as_file(), &data, offset as u64).unwrap();
            expected[offset..offset + length].copy_from_slice(&data);
        }
        file.flush().unwrap();
        let source = FileSource::open(file.path(), CancellationToken::new()).unwrap();
        let mut body = source.open_body().unwrap();
        let (mut bytes, mut read) = (Vec::new(), 0);
        while let Some(chunk) = body.next_chunk().unwrap() {
            if !stream::zeros::is_known_zero(&chunk) {
                read += chunk.len();
            }
            bytes.extend_from_slice(&chunk);
        }
        assert!(bytes == expected);
        assert!(read < 3 * CHUNK_BYTES, "{read} bytes were read");
    }

    #[test]
    fn a_file_that_changes_its_length_is_refused() {
        let file = file(b"0123456789");
        for (length, word) in [(9, "fewer"), (11, "more")] {
            file.as_file().set_len(10).unwrap();
            let source = FileSource::open(file.path(), CancellationToken::new()).unwrap();
            file.as_file().set_len(length).unwrap();
            let error = read_all(&mut *source.open_body().unwrap()).unwrap_err();
            assert_eq!(error.kind(), SourceErrorKind::Changed);
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_pipe_is_read_in_order_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let write_path = path.clone();
        let writer =
            std::thread::spawn(move || std::fs::write(write_path, vec![7; 3_000_000]).unwrap());
        let source = FileSource::open(&path, CancellationToken::new()).unwrap();
        assert_eq!((source.total_bytes(), source.is_ranged()), (None, false));
        let mut body = source.open_body().unwrap();
        assert!(body.skip_to(1).is_err());
        assert_eq!(read_all(&mut *body).unwrap(), vec![7; 3_000_000]);
        writer.join().unwrap();
    }

    #[test]
    fn a_path_that_cannot_be_opened_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let message = |path: &Path| {
            FileSource::open(path, CancellationToken::new()).err().unwrap().to_string()
        };
        assert!(message(dir.path()).ends_with("is a directory"));
        assert!(
            message(&dir.path().join("missing")).ends_with("missing: no such file or directory")
        );
    }
}
