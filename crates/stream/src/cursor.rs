//! A cursor over a chunk stream, for decoders and the tar reader.

use bytes::{Buf, Bytes};

use crate::chunks::ChunkStream;
use crate::error::Error;

/// A cursor over a stream of chunks. Chunks are used in place; only [`ChunkCursor::peek_bytes`]
/// may copy a few bytes.
pub struct ChunkCursor {
    inner: Box<dyn ChunkStream>,
    /// The bytes at the cursor.
    current: Bytes,
    /// The rest of a chunk whose beginning was appended to `current`.
    following: Bytes,
    offset: u64,
}

impl ChunkCursor {
    /// Creates a cursor at the start of `inner`.
    pub fn new(inner: Box<dyn ChunkStream>) -> Self {
        Self { inner, current: Bytes::new(), following: Bytes::new(), offset: 0 }
    }

    /// Number of bytes consumed so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Offset of the end of the bytes at the cursor.
    pub fn buffered_end(&self) -> u64 {
        self.offset + self.current.len() as u64
    }

    /// The bytes at the cursor; empty only at the end of the stream.
    pub fn fill_buffer(&mut self) -> Result<&[u8], Error> {
        if self.current.is_empty()
            && let Some(next) = self.pull_chunk()?
        {
            self.current = next;
        }
        Ok(&self.current)
    }

    /// The bytes at the cursor: at least `want`, unless the stream ends earlier.
    pub fn peek_bytes(&mut self, want: usize) -> Result<&[u8], Error> {
        self.fill_buffer()?;
        while self.current.len() < want
            && let Some(mut next) = self.pull_chunk()?
        {
            let missing = next.split_to(next.len().min(want - self.current.len()));
            self.current = [&self.current[..], &missing].concat().into();
            self.following = next;
        }
        Ok(&self.current)
    }

    /// Takes up to `most` of the bytes at the cursor, without copying. Returns no bytes only at
    /// the end of the stream.
    pub fn take_bytes(&mut self, most: u64) -> Result<Bytes, Error> {
        let available = self.fill_buffer()?.len();
        let length = usize::try_from(most).unwrap_or(usize::MAX).min(available);
        self.offset += length as u64;
        Ok(self.current.split_to(length))
    }

    /// Moves the cursor past `count` of the bytes that [`ChunkCursor::fill_buffer`] returned.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.current.len());
        self.current.advance(count);
        self.offset += count as u64;
    }

    fn pull_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.following.is_empty() {
            self.inner.next_chunk()
        } else {
            Ok(Some(std::mem::take(&mut self.following)))
        }
    }
}
