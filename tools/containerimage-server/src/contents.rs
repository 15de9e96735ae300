//! Streams bytes of a file as the body of a response.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use hyper::body::Frame;
use program::threads::{self, ThreadError};
use rustix::buffer::spare_capacity;
use rustix::io::{pread, retry_on_intr};
use tokio::sync::mpsc;

/// Bytes in one read: few enough to stay in the processor's cache on their way to the socket.
const CHUNK_BYTES: u64 = 256 << 10;

/// Streams the bytes of `range`, which are read as the client takes them. If the file was
/// truncated, the response breaks off. A slow disk must not block anything else, so a separate
/// thread reads, one chunk ahead.
pub(crate) fn stream_range(
    file: Arc<File>,
    range: Range<u64>,
) -> Result<impl Stream<Item = io::Result<Frame<Bytes>>>, ThreadError> {
    let (sender, chunks) = mpsc::channel(1);
    threads::start_thread(move || {
        let mut at = range.start;
        while at < range.end {
            let chunk = read_chunk(&file, at, CHUNK_BYTES.min(range.end - at));
            let length = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
            // The send fails if the connection was closed.
            if sender.blocking_send(chunk).is_err() || length == 0 {
                return;
            }
            at += length;
        }
    })?;
    Ok(stream::unfold(chunks, |mut chunks| async move {
        let chunk = chunks.recv().await?;
        Some((chunk.map(Frame::data), chunks))
    }))
}

/// Reads at least one byte and at most `wanted` bytes at the offset `at`.
fn read_chunk(file: &File, at: u64, wanted: u64) -> io::Result<Bytes> {
    let mut chunk = Vec::with_capacity(usize::try_from(wanted).unwrap_or_default());
    if retry_on_intr(|| pread(file, spare_capacity(&mut chunk), at))? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // The allocator may provide more capacity than was requested.
    chunk.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
    Ok(chunk.into())
}
