//! Bytes of a file as the body of an answer.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use hyper::body::Frame;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

/// Bytes that are read at once: few enough to stay in the processor's cache on their way to the socket.
const CHUNK_BYTES: u64 = 256 << 10;

/// The bytes of `range`, read as they are wanted. A file that has become shorter breaks the answer.
pub(crate) fn of(file: Arc<File>, range: Range<u64>) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    stream::try_unfold((file, range), |(file, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let at = range.start;
        let wanted = CHUNK_BYTES.min(range.end - at);
        let source = Arc::clone(&file);
        // A disk may be slow, and nothing else may wait for it.
        let chunk = tokio::task::spawn_blocking(move || read(&source, at, wanted)).await??;
        let left = at + chunk.len() as u64..range.end;
        Ok(Some((Frame::data(chunk), (file, left))))
    })
}

/// At least one byte at `at`, and `wanted` at most.
fn read(file: &File, at: u64, wanted: u64) -> io::Result<Bytes> {
    let mut chunk = Vec::with_capacity(usize::try_from(wanted).unwrap_or_default());
    loop {
        match rustix::io::pread(file, spare_capacity(&mut chunk), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // An allocator may give more than it was asked for.
    chunk.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
    Ok(chunk.into())
}
