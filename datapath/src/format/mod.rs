//! From a decoded stream to extents on the target: one file per way an image is laid out.

pub mod ahead;
pub mod mapped;
pub mod park;
pub mod raw;

use bytes::Bytes;

use self::ahead::Ahead;
use crate::chunks::{Chunks, Peek};
use crate::error::Error;
use crate::meter::Meter;

/// The image's bytes, in order.
pub enum Input {
    /// As the source gives them; a ranged source can skip.
    Direct {
        /// The stream.
        stream: Peek<Meter>,
        /// Bytes taken so far.
        position: u64,
        /// True if the source has ranges.
        ranged: bool,
        /// What was fetched ahead, where it must be compared.
        ahead: Ahead,
    },
    /// Out of a stack of decoders.
    Decoded(Peek<Box<dyn Chunks>>),
}

impl Input {
    /// The first `want` bytes, not consumed.
    pub fn peek(&mut self, want: usize) -> Result<Bytes, Error> {
        match self {
            Self::Direct { stream, .. } => stream.peek(want),
            Self::Decoded(stream) => stream.peek(want),
        }
    }

    /// Remembers what was fetched from `start` on, if all of the stream is going to pass under a digest.
    pub fn fetched_ahead(&mut self, start: u64, bytes: &[u8]) {
        if let Self::Direct { stream, ahead, .. } = self
            && stream.inner_mut().must_read_all()
        {
            ahead.add(start, bytes);
        }
    }

    /// Continues at `offset` of the image without passing what lies between, if the source can; otherwise nothing
    /// happens. Returns where the stream is now.
    pub fn skip_towards(&mut self, offset: u64) -> Result<u64, Error> {
        let Self::Direct {
            stream,
            position,
            ranged: true,
            ..
        } = self
        else {
            return Ok(0);
        };
        if stream.inner_mut().must_read_all() {
            return Ok(*position);
        }
        *position += stream.drop_peeked(offset - *position);
        if *position < offset {
            stream.inner_mut().skip_to(offset)?;
            *position = offset;
        }
        Ok(*position)
    }
}

impl Chunks for Input {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match self {
            Self::Direct {
                stream,
                position,
                ahead,
                ..
            } => {
                let chunk = stream.next_chunk()?;
                if let Some(chunk) = &chunk {
                    ahead.pass(*position, chunk)?;
                    *position += chunk.len() as u64;
                }
                Ok(chunk)
            }
            Self::Decoded(stream) => stream.next_chunk(),
        }
    }

    fn next_placed(&mut self, received: u64) -> Result<Option<(u64, Bytes)>, Error> {
        match self {
            Self::Direct { .. } => Ok(self.next_chunk()?.map(|bytes| (received, bytes))),
            Self::Decoded(stream) => stream.next_placed(received),
        }
    }
}
