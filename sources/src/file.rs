//! A local file, block device or pipe.

use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use datapath::buffer::Pool;
use datapath::error::{SourceError, SourceErrorKind, errno_text};
use datapath::source::{Body, Source};
use datapath::storage::Storage;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio_util::sync::CancellationToken;

use crate::engine::check_range;
use crate::error::invalid;
use crate::network::stopped;

/// Longest wait for a silent pipe without a look at the stop token.
const PIPE_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A file, a block device (both ranged) or a pipe (read once).
pub struct FileSource {
    name: String,
    file: Arc<File>,
    /// Known for files and block devices, which are those that can be read at an offset.
    length: Option<u64>,
    stop: CancellationToken,
}

impl FileSource {
    /// Opens `path` for reading; `-` is standard input. `stop` ends the wait for a pipe.
    pub fn open(path: &Path, stop: CancellationToken) -> Result<Self, SourceError> {
        if path.as_os_str() == "-" {
            return Self::stdin(stop);
        }
        let name = path.display().to_string();
        let open = || -> io::Result<(File, Option<u64>)> {
            let mut file = File::open(path)?;
            let kind = file.metadata()?.file_type();
            if kind.is_dir() {
                return Err(io::Error::from(io::ErrorKind::IsADirectory));
            }
            let is_ranged = kind.is_file() || kind.is_block_device();
            let length = is_ranged.then(|| file.seek(SeekFrom::End(0))).transpose()?;
            Ok((file, length))
        };
        let (file, length) = open().map_err(|error| io_error("open", &name, &error))?;
        Ok(Self {
            name,
            file: Arc::new(file),
            length,
            stop,
        })
    }

    /// Standard input, of unknown length whatever it is connected to.
    fn stdin(stop: CancellationToken) -> Result<Self, SourceError> {
        let name = "standard input".to_owned();
        let fd = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| io_error("open", &name, &error))?;
        Ok(Self {
            name,
            file: Arc::new(fd.into()),
            length: None,
            stop,
        })
    }
}

impl Source for FileSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn is_ranged(&self) -> bool {
        self.length.is_some()
    }

    fn storage(&self) -> Option<Storage> {
        Storage::of(&self.file)
    }

    fn body(&self) -> Result<Box<dyn Body>, SourceError> {
        Ok(Box::new(FileBody {
            pool: Pool::default(),
            name: self.name.clone(),
            file: Arc::clone(&self.file),
            length: self.length,
            position: 0,
            stop: self.stop.clone(),
        }))
    }

    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        let length = self.length.unwrap_or(0);
        check_range(&range, length)?;
        let wanted = range.end - range.start;
        let mut bytes = vec![0; usize::try_from(wanted).unwrap_or(usize::MAX)];
        match self.file.read_exact_at(&mut bytes, range.start) {
            Ok(()) => Ok(bytes.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(length_changed(&self.name, length, "fewer"))
            }
            Err(error) => Err(io_error("read", &self.name, &error)),
        }
    }
}

struct FileBody {
    pool: Pool,
    name: String,
    file: Arc<File>,
    length: Option<u64>,
    position: u64,
    stop: CancellationToken,
}

impl FileBody {
    /// The next bytes; none at the end.
    fn read(&self) -> Result<Bytes, SourceError> {
        match self.length {
            Some(length) => self
                .read_file(length)
                .map_err(|error| io_error("read", &self.name, &error)),
            None => self.read_pipe(),
        }
    }

    /// A chunk at the position; shorter only at the end of the file.
    fn read_file(&self, length: u64) -> io::Result<Bytes> {
        let mut chunk = self.pool.take(self.position);
        let mut at = self.position;
        while at < length && !chunk.is_full() {
            let room = chunk.room();
            let wanted = usize::try_from(length - at).map_or(room.len(), |left| left.min(room.len()));
            match self.file.read_at(&mut room[..wanted], at) {
                Ok(0) => break,
                Ok(read) => {
                    chunk.filled(read as u64);
                    at += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(chunk.freeze())
    }

    /// Bytes that the pipe holds (seldom more than a chunk, see `/proc/sys/fs/pipe-max-size`), as soon as it holds anything.
    fn read_pipe(&self) -> Result<Bytes, SourceError> {
        let failed = |error: &io::Error| io_error("read", &self.name, error);
        loop {
            if self.stop.is_cancelled() {
                return Err(stopped());
            }
            let mut waiting = [PollFd::new(&*self.file, PollFlags::IN)];
            match rustix::event::poll(&mut waiting, Some(&PIPE_WAIT)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(failed(&errno.into())),
            }
            let mut chunk = self.pool.take(self.position);
            match (&*self.file).read(chunk.room()) {
                Ok(read) => {
                    chunk.filled(read as u64);
                    return Ok(chunk.freeze());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    /// A file that was still being written when it was opened is not the image that was meant.
    fn check_end(&self) -> Result<(), SourceError> {
        let Some(length) = self.length else { return Ok(()) };
        if self.position < length {
            return Err(length_changed(&self.name, length, "fewer"));
        }
        match self.file.read_at(&mut [0], length) {
            Ok(0) => Ok(()),
            Ok(_) => Err(length_changed(&self.name, length, "more")),
            Err(error) => Err(io_error("read", &self.name, &error)),
        }
    }
}

impl Body for FileBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let bytes = self.read()?;
        if bytes.is_empty() {
            self.check_end()?;
            return Ok(None);
        }
        self.position += bytes.len() as u64;
        Ok(Some(bytes))
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        if offset < self.position || self.length.is_none_or(|length| offset > length) {
            let message = format!(
                "{}: cannot skip from byte {} to byte {offset}",
                self.name, self.position
            );
            return Err(invalid(message));
        }
        self.position = offset;
        Ok(())
    }
}

fn io_error(action: &str, name: &str, error: &io::Error) -> SourceError {
    SourceError::new(
        SourceErrorKind::Io,
        format!("{action} {name}: {}", errno_text(error)),
    )
}

fn length_changed(name: &str, length: u64, direction: &str) -> SourceError {
    let message = format!("{name} held {length} bytes when it was opened and holds {direction} now");
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

    fn read_all(body: &mut dyn Body) -> Result<Vec<u8>, SourceError> {
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
        assert_eq!((source.length(), source.is_ranged()), (Some(10_000_000), true));
        assert_eq!(read_all(&mut *source.body().unwrap()).unwrap(), bytes);
        assert_eq!(
            source.read_range(9_999_990..10_000_000).unwrap(),
            bytes[9_999_990..]
        );
        assert_eq!(source.read_range(5..5).unwrap().len(), 0);
        assert!(source.read_range(0..10_000_001).is_err());
        let mut body = source.body().unwrap();
        body.skip_to(9_999_999).unwrap();
        assert_eq!(read_all(&mut *body).unwrap(), bytes[9_999_999..]);
        assert!(body.skip_to(5).is_err());
    }

    #[test]
    fn a_file_that_changes_its_length_is_no_image() {
        let file = file(b"0123456789");
        for (length, word) in [(9, "fewer"), (11, "more")] {
            file.as_file().set_len(10).unwrap();
            let source = FileSource::open(file.path(), CancellationToken::new()).unwrap();
            file.as_file().set_len(length).unwrap();
            let error = read_all(&mut *source.body().unwrap()).unwrap_err();
            assert_eq!(error.kind(), SourceErrorKind::Changed);
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_pipe_is_plain() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let write_path = path.clone();
        let writer = std::thread::spawn(move || std::fs::write(write_path, vec![7; 3_000_000]).unwrap());
        let source = FileSource::open(&path, CancellationToken::new()).unwrap();
        assert_eq!((source.length(), source.is_ranged()), (None, false));
        let mut body = source.body().unwrap();
        assert!(body.skip_to(1).is_err());
        assert_eq!(read_all(&mut *body).unwrap(), vec![7; 3_000_000]);
        writer.join().unwrap();
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let message = |path: &Path| {
            FileSource::open(path, CancellationToken::new())
                .err()
                .unwrap()
                .to_string()
        };
        assert!(message(dir.path()).ends_with("is a directory"));
        assert!(message(&dir.path().join("missing")).ends_with("missing: no such file or directory"));
    }
}
