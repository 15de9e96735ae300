//! From a decoded stream to extents on the target: one file per way an image is laid out.

pub mod ahead;
pub mod mapped;
pub mod park;
pub mod raw;

use bytes::Bytes;

use self::ahead::Ahead;
use crate::chunks::{Chunks, Peek};
use crate::error::{Error, FormatError};
use crate::memory::Grant;
use crate::meter::Meter;
use crate::source::Source;

/// Bytes that an image may have beside its disk: tables, an appliance's other files, what a crash has left behind.
const SPARE_BYTES: u64 = 1 << 30;

/// Bytes of an image for each byte of its disk: that many snapshots of all of it.
const WORTH: u64 = 16;

/// The image's bytes, in order.
pub struct Input {
    bytes: Stream,
    /// Bytes that have passed.
    passed: u64,
    /// Bytes that may pass, once that is known.
    most: u64,
    /// What a long head is held in, until it passes.
    head: Option<Grant>,
}

/// Where the bytes come from.
enum Stream {
    /// As the source gives them; a ranged source can skip.
    Direct {
        /// The stream.
        stream: Box<Peek<Meter>>,
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
    /// What the source gives is the image. What is fetched ahead is remembered in `memory`.
    pub(crate) fn direct(stream: Peek<Meter>, memory: Grant) -> Self {
        Self::of(Stream::Direct {
            stream: Box::new(stream),
            position: 0,
            // Found out when an image turns up that has a map: it costs a request.
            ranged: false,
            ahead: Ahead::new(memory),
        })
    }

    /// The image is in layers that are undone.
    pub(crate) fn decoded(stream: Peek<Box<dyn Chunks>>) -> Self {
        Self::of(Stream::Decoded(stream))
    }

    fn of(bytes: Stream) -> Self {
        Self {
            bytes,
            passed: 0,
            most: u64::MAX,
            head: None,
        }
    }

    /// A head is peeked at that is larger than buffers are.
    pub(crate) fn hold_head(&mut self, grant: Grant) {
        self.head = Some(grant);
    }

    /// The bytes are an image with a map, of a disk of `virtual_size`. A stream that goes on long after that is none, and may
    /// never end.
    pub(crate) fn expect_image_of(&mut self, virtual_size: u64) {
        self.most = virtual_size.saturating_mul(WORTH).saturating_add(SPARE_BYTES);
    }

    fn pass(&mut self, bytes: usize) -> Result<(), Error> {
        self.passed += bytes as u64;
        // What was peeked at is one chunk, and it is the first.
        self.head = None;
        if self.passed <= self.most {
            return Ok(());
        }
        Err(FormatError::Endless {
            passed: self.passed,
            most: self.most,
        }
        .into())
    }

    /// Whether the source has ranges, if its bytes are those of the image.
    pub(crate) fn ask_ranged(&mut self, source: &dyn Source) -> bool {
        let Stream::Direct { ranged, .. } = &mut self.bytes else {
            return false;
        };
        *ranged = source.is_ranged();
        *ranged
    }

    /// The first `want` bytes, not consumed.
    pub fn peek(&mut self, want: usize) -> Result<Bytes, Error> {
        match &mut self.bytes {
            Stream::Direct { stream, .. } => stream.peek(want),
            Stream::Decoded(stream) => stream.peek(want),
        }
    }

    /// Remembers what was fetched from `start` on, if all of the stream is going to pass under a digest.
    pub fn fetched_ahead(&mut self, start: u64, bytes: &[u8]) -> Result<(), Error> {
        if let Stream::Direct { stream, ahead, .. } = &mut self.bytes
            && stream.inner_mut().must_read_all()
        {
            ahead.add(start, bytes)?;
        }
        Ok(())
    }

    /// Continues at `offset` of the image without passing what lies between, if the source can; otherwise nothing
    /// happens. Returns where the stream is now.
    pub fn skip_towards(&mut self, offset: u64) -> Result<u64, Error> {
        let Stream::Direct {
            stream,
            position,
            ranged: true,
            ..
        } = &mut self.bytes
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

impl Chunks for Stream {
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

impl Chunks for Input {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let chunk = self.bytes.next_chunk()?;
        self.pass(chunk.as_ref().map_or(0, Bytes::len))?;
        Ok(chunk)
    }

    fn next_placed(&mut self, received: u64) -> Result<Option<(u64, Bytes)>, Error> {
        let placed = self.bytes.next_placed(received)?;
        self.pass(placed.as_ref().map_or(0, |(_, bytes)| bytes.len()))?;
        Ok(placed)
    }
}
