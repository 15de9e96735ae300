//! The stream between the stages: reference-counted chunks of bytes, pulled in order. Their size
//! is [`CHUNK_BYTES`](crate::buffer::CHUNK_BYTES).

use bytes::{Bytes, BytesMut};

use crate::error::Error;

/// A blocking stream of bytes.
pub trait ChunkStream: Send {
    /// Returns the next bytes (never an empty chunk), or `None` at the verified end.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error>;

    /// Returns the next bytes together with their offset in the stream, for callers that accept
    /// any order. A stream that several threads produce returns whatever is ready. Every byte is
    /// returned once; `None` means the verified end.
    ///
    /// `received` is the number of bytes that the caller has received so far. For a stream that is
    /// returned in order, it is the offset of the next bytes. After the first call to this method,
    /// `next_chunk` must not be called any more.
    fn next_placed(&mut self, received: u64) -> Result<Option<(u64, Bytes)>, Error> {
        Ok(self.next_chunk()?.map(|bytes| (received, bytes)))
    }
}

impl<C: ChunkStream + ?Sized> ChunkStream for Box<C> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        (**self).next_chunk()
    }

    fn next_placed(&mut self, received: u64) -> Result<Option<(u64, Bytes)>, Error> {
        (**self).next_placed(received)
    }
}

/// Looks at the first bytes of a stream without consuming them.
pub struct PeekStream<C> {
    inner: C,
    head: std::collections::VecDeque<Bytes>,
    ended: bool,
}

impl<C: ChunkStream> PeekStream<C> {
    /// Wraps `inner`.
    pub fn new(inner: C) -> Self {
        Self { inner, head: std::collections::VecDeque::new(), ended: false }
    }

    /// Returns the first `want` bytes of the remaining stream, or all of it if it is shorter.
    /// Peeked chunks are joined into one, so that a stream of single bytes does not cost a handle
    /// for each.
    pub fn peek(&mut self, want: usize) -> Result<Bytes, Error> {
        if self.head.is_empty() && !self.ended {
            self.pull_chunk()?;
        }
        if let [first] = self.head.make_contiguous()
            && (first.len() >= want || self.ended)
        {
            return Ok(first.slice(..want.min(first.len())));
        }
        // This is rare: the first chunk is shorter than `want`.
        let mut joined = BytesMut::with_capacity(want);
        loop {
            while let Some(chunk) = self.head.pop_front() {
                joined.extend_from_slice(&chunk);
            }
            if joined.len() >= want || self.ended {
                break;
            }
            self.pull_chunk()?;
        }
        let joined = joined.freeze();
        if !joined.is_empty() {
            self.head.push_back(joined.clone());
        }
        Ok(joined.slice(..want.min(joined.len())))
    }

    fn pull_chunk(&mut self) -> Result<(), Error> {
        match self.inner.next_chunk()? {
            Some(chunk) => self.head.push_back(chunk),
            None => self.ended = true,
        }
        Ok(())
    }

    /// Drops up to `bytes` of the peeked bytes and returns how many were dropped.
    pub fn drop_peeked(&mut self, bytes: u64) -> u64 {
        let mut left = bytes;
        while left > 0
            && let Some(first) = self.head.front_mut()
        {
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(first.len());
            bytes::Buf::advance(first, take);
            left -= take as u64;
            if first.is_empty() {
                self.head.pop_front();
            }
        }
        bytes - left
    }

    /// The wrapped stream, for operations that only it supports. Bytes already peeked are no
    /// longer in it.
    pub fn inner_mut(&mut self) -> &mut C {
        &mut self.inner
    }
}

impl<C: ChunkStream> ChunkStream for PeekStream<C> {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match self.head.pop_front() {
            Some(chunk) => Ok(Some(chunk)),
            None if self.ended => Ok(None),
            None => self.inner.next_chunk(),
        }
    }

    /// Returns peeked chunks first: they are the start of the stream and came in order.
    fn next_placed(&mut self, received: u64) -> Result<Option<(u64, Bytes)>, Error> {
        match self.head.pop_front() {
            Some(chunk) => Ok(Some((received, chunk))),
            None if self.ended => Ok(None),
            None => self.inner.next_placed(received),
        }
    }
}
