//! The body of a pipe, read as its bytes arrive.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use stream::bridge::{COPY_WAIT, REST_WAIT};
use stream::buffer::ChunkBuffer;
use stream::error::SourceError;
use stream::source::SourceBody;
use tokio_util::sync::CancellationToken;

use crate::error::io_error;
use crate::error::stopped_error;

/// Longest wait for a silent pipe before the stop token is checked again.
const PIPE_WAIT: Duration = Duration::from_millis(100);

/// Opens standard input, whatever it is connected to.
#[cfg(unix)]
pub(crate) fn open_stdin() -> io::Result<File> {
    use std::os::fd::AsFd;

    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Waits for at most `wait`. Returns true if `file` contains bytes or is at its end.
#[cfg(unix)]
fn has_input(file: &File, wait: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;

    let wait = Timespec::try_from(wait).map_err(|_| ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Fails: `kubectl-cdi`, the only program for Windows, reads no pipes.
#[cfg(not(unix))]
pub(crate) fn open_stdin() -> io::Result<File> {
    Err(ErrorKind::Unsupported.into())
}

/// Fails, see [`open_stdin`].
#[cfg(not(unix))]
fn has_input(_: &File, _: Duration) -> io::Result<bool> {
    Err(ErrorKind::Unsupported.into())
}

/// The body of a pipe, or of another file that cannot be read at an offset.
pub(crate) struct PipeBody {
    name: String,
    file: Arc<File>,
    position: u64,
    /// Longest waits for more bytes, and for a full chunk, once there are some.
    waits: [Duration; 2],
    stop: CancellationToken,
}

impl PipeBody {
    /// Creates a body with the rest of `file`; `stop` cancels a wait.
    pub(crate) fn new(name: String, file: Arc<File>, stop: CancellationToken) -> Self {
        Self { name, file, position: 0, waits: [COPY_WAIT, REST_WAIT], stop }
    }

    /// Waits for at most `wait`. Returns true if the pipe contains bytes or is at its end.
    fn is_ready(&self, wait: Duration) -> Result<bool, SourceError> {
        if self.stop.is_cancelled() {
            return Err(stopped_error());
        }
        has_input(&self.file, wait).map_err(|error| self.read_error(&error))
    }

    fn read_error(&self, error: &io::Error) -> SourceError {
        io_error("read", &self.name, error)
    }
}

impl SourceBody for PipeBody {
    /// Returns a full chunk, or the bytes received so far if no more arrive soon. A pipe holds
    /// only 64 KiB unless its writer requested more, so a chunk takes several reads.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let mut chunk = ChunkBuffer::new(self.position);
        let [pack_wait, rest_wait] = self.waits;
        let mut since = None;
        // Fill the chunk, because one with only the 64 KiB of one read would hold a whole chunk's
        // memory.
        while !chunk.is_full() && since.is_none_or(|since: Instant| since.elapsed() < rest_wait) {
            let wait = if chunk.is_empty() { PIPE_WAIT } else { pack_wait };
            if !self.is_ready(wait)? {
                if chunk.is_empty() {
                    continue;
                }
                break;
            }
            match (&*self.file).read(chunk.spare_capacity()) {
                Ok(0) => break,
                Ok(read) => chunk.mark_filled(read as u64),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.read_error(&error)),
            }
            since.get_or_insert_with(Instant::now);
        }
        self.position += chunk.len() as u64;
        Ok((!chunk.is_empty()).then(|| chunk.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use stream::buffer::CHUNK_BYTES;

    use super::*;

    fn pipe() -> (PipeBody, io::PipeWriter) {
        let (reader, writer) = io::pipe().unwrap();
        let file = Arc::new(File::from(std::os::fd::OwnedFd::from(reader)));
        (PipeBody::new("pipe".to_owned(), file, CancellationToken::new()), writer)
    }

    #[test]
    fn chunks_are_full_even_if_reads_are_small() {
        let (mut body, mut writer) = pipe();
        // However slow this machine is.
        body.waits = [testkit::wait::PATIENCE; 2];
        let writing = std::thread::spawn(move || {
            (0..300).for_each(|_| writer.write_all(&[7; 1000]).unwrap())
        });
        let lengths = [(); 3].map(|()| body.next_chunk().unwrap().map(|chunk| chunk.len()));
        assert_eq!(lengths, [Some(CHUNK_BYTES), Some(300_000 - CHUNK_BYTES), None]);
        writing.join().unwrap();
    }

    #[test]
    fn received_bytes_do_not_wait_for_long() {
        let (mut body, mut writer) = pipe();
        writer.write_all(b"first").unwrap();
        assert_eq!(body.next_chunk().unwrap().unwrap(), "first");
        // The writer is never silent for long, but never fills a chunk.
        let writing = std::thread::spawn(move || {
            while writer.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(body.next_chunk().unwrap().unwrap().len() < CHUNK_BYTES);
        drop(body);
        writing.join().unwrap();
    }

    #[test]
    fn a_stop_ends_the_wait_for_data() {
        let (mut body, _writer) = pipe();
        body.stop.cancel();
        assert!(body.next_chunk().is_err());
    }
}
