//! Decodes the blocks of an .xz stream with several threads.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::error::{DecodeError, Error};

use super::pool::ReaderStep;
use super::state::{BlockExtent, Placed};
use super::walk::{XzFilePart, XzFileWalk};
use super::worker::DecoderThreads;

/// The reader. It feeds the workers and returns the chunks that they decode, on the thread of the
/// caller.
pub(super) struct ParallelXzReader {
    walk: XzFileWalk,
    workers: DecoderThreads,
    rest: RemainingInput,
    in_any_order: bool,
}

/// State of the rest of the file.
enum RemainingInput {
    More,
    /// The file was read to its end, and everything around the blocks was verified.
    End,
    /// The file is damaged. The error is returned after all data before it was delivered.
    Bad(DecodeError),
}

impl ParallelXzReader {
    pub(super) fn new(inner: Box<dyn ChunkStream>, workers: DecoderThreads) -> Self {
        Self {
            walk: XzFileWalk::new(inner),
            workers,
            rest: RemainingInput::More,
            in_any_order: false,
        }
    }

    fn next(&mut self) -> Result<Option<Placed>, Error> {
        loop {
            match self.workers.pool.next_step(matches!(self.rest, RemainingInput::More)) {
                ReaderStep::Deliver(chunk) => return Ok(Some(chunk)),
                ReaderStep::Fail(error) => return Err(error.into()),
                ReaderStep::Feed => self.feed_pool()?,
                ReaderStep::Done => {
                    return match std::mem::replace(&mut self.rest, RemainingInput::End) {
                        RemainingInput::Bad(error) => Err(error.into()),
                        RemainingInput::More | RemainingInput::End => Ok(None),
                    };
                }
            }
        }
    }

    /// Reads the next part of the file and passes it to the pool. A decoding error is not returned
    /// at once, because an earlier block may turn out to be damaged too.
    fn feed_pool(&mut self) -> Result<(), Error> {
        let pool = &self.workers.pool;
        match self.walk.next_part() {
            Ok(Some(XzFilePart::Begin(block))) => {
                pool.change_state(|state| state.begin_block(block))
            }
            Ok(Some(XzFilePart::Bytes(bytes))) => {
                pool.change_state(|state| state.feed_bytes(bytes))
            }
            Ok(Some(XzFilePart::End(decoded))) => {
                pool.change_state(|state| state.end_block(BlockExtent::Whole(decoded)))
            }
            Ok(None) => self.rest = RemainingInput::End,
            Err(Error::Decode(error)) => {
                pool.change_state(|state| state.end_block(BlockExtent::Cut));
                self.rest = RemainingInput::Bad(error);
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }
}

impl ChunkStream for ParallelXzReader {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.next()?.map(|(_, bytes)| bytes))
    }

    fn next_placed(&mut self, _received: u64) -> Result<Option<Placed>, Error> {
        if !self.in_any_order {
            self.workers.pool.change_state(|state| state.any_order = true);
            self.in_any_order = true;
        }
        self.next()
    }
}
