//! Decodes the blocks of an .xz stream with several threads.

use bytes::Bytes;
use stream::chunks::ChunkStream;
use stream::error::{DecodeError, Error};

use super::state::{Placed, ReaderStep};
use super::walk::{BlockPart, XzFilePart, XzFileWalk};
use super::worker::DecoderThreads;

/// The reader. It feeds the workers and returns the chunks that they decode, on the thread of the
/// caller.
pub(super) struct ParallelXzReader {
    walk: XzFileWalk,
    workers: DecoderThreads,
    /// False at the end of the file, and where it is damaged.
    has_more: bool,
    /// The damage. It is reported after all data before it was delivered.
    fault: Option<DecodeError>,
    in_any_order: bool,
}

impl ParallelXzReader {
    pub(super) fn new(inner: Box<dyn ChunkStream>, workers: DecoderThreads) -> Self {
        Self {
            walk: XzFileWalk::new(inner),
            workers,
            has_more: true,
            fault: None,
            in_any_order: false,
        }
    }

    fn next(&mut self) -> Result<Option<Placed>, Error> {
        loop {
            match self.workers.pool.next_step(self.has_more) {
                ReaderStep::Deliver(chunk) => return Ok(Some(chunk)),
                ReaderStep::Fail(error) => return Err(error.into()),
                ReaderStep::Feed => self.feed_pool()?,
                ReaderStep::Done => {
                    return self.fault.take().map_or(Ok(None), |fault| Err(fault.into()));
                }
            }
        }
    }

    /// Reads the next part of the file and passes it to the pool. A decoding error is not returned
    /// at once, because an earlier block may turn out to be damaged too.
    fn feed_pool(&mut self) -> Result<(), Error> {
        let part = match self.walk.next_part() {
            Ok(Some(part)) => part,
            Ok(None) => {
                self.has_more = false;
                return Ok(());
            }
            Err(Error::Decode(fault)) => {
                self.has_more = false;
                self.fault = Some(fault);
                XzFilePart::Block(BlockPart::Cut)
            }
            Err(other) => return Err(other),
        };
        self.workers.pool.change_state(|state| state.feed_part(part));
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
