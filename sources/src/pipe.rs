//! The bytes of a pipe, as they come.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use datapath::buffer::Pool;
use datapath::error::SourceError;
use datapath::source::Body;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio_util::sync::CancellationToken;

use crate::error::{invalid, io_error};
use crate::network::stopped;

/// Longest wait for a silent pipe without a look at the stop token.
const PIPE_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A pipe, or another file that cannot be read at an offset.
pub(crate) struct PipeBody {
    name: String,
    file: Arc<File>,
    pool: Pool,
    position: u64,
    stop: CancellationToken,
}

impl PipeBody {
    /// The rest of `file`; `stop` ends a wait.
    pub(crate) fn new(name: String, file: Arc<File>, stop: CancellationToken) -> Self {
        Self {
            name,
            file,
            pool: Pool::default(),
            position: 0,
            stop,
        }
    }
}

impl Body for PipeBody {
    /// Bytes that the pipe holds (seldom more than a chunk, see `/proc/sys/fs/pipe-max-size`), as soon as it holds anything.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
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
                Ok(0) => return Ok(None),
                Ok(read) => {
                    chunk.filled(read as u64);
                    self.position += read as u64;
                    return Ok(Some(chunk.freeze()));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let (name, position) = (&self.name, self.position);
        Err(invalid(format!(
            "{name}: cannot skip from byte {position} to byte {offset}"
        )))
    }
}
