//! An .xz stream whose blocks are decoded by several threads.

use bytes::Bytes;

use super::pool::Step;
use super::state::Placed;
use super::walk::{Part, Walk};
use super::worker::Workers;
use crate::chunks::Chunks;
use crate::error::{DecodeError, Error};

/// The reader: feeds the workers and hands out what they decode, on the thread that pulls.
pub(super) struct Parallel {
    walk: Walk,
    workers: Workers,
    rest: Rest,
    in_any_order: bool,
}

/// The rest of the file.
enum Rest {
    More,
    /// Nothing is left, and everything around the blocks was verified.
    End,
    /// Damaged: the error is returned after all that can be decoded before it.
    Bad(DecodeError),
}

impl Parallel {
    pub(super) fn new(inner: Box<dyn Chunks>, workers: Workers) -> Self {
        Self {
            walk: Walk::new(inner),
            workers,
            rest: Rest::More,
            in_any_order: false,
        }
    }

    fn next(&mut self) -> Result<Option<Placed>, Error> {
        loop {
            match self.workers.pool.step(matches!(self.rest, Rest::More)) {
                Step::Deliver(chunk) => return Ok(Some(chunk)),
                Step::Fail(error) => return Err(error.into()),
                Step::Feed => self.feed()?,
                Step::Done => {
                    return match std::mem::replace(&mut self.rest, Rest::End) {
                        Rest::Bad(error) => Err(error.into()),
                        Rest::More | Rest::End => Ok(None),
                    };
                }
            }
        }
    }

    /// Reads a part of the file. An error in it has to wait: a block before may be bad as well.
    fn feed(&mut self) -> Result<(), Error> {
        let pool = &self.workers.pool;
        match self.walk.next_part() {
            Ok(Some(Part::Begin(block))) => pool.begin(block),
            Ok(Some(Part::Bytes(bytes))) => pool.feed(bytes),
            Ok(Some(Part::End(decoded))) => pool.complete(decoded),
            Ok(None) => self.rest = Rest::End,
            Err(Error::Decode(error)) => {
                pool.cut();
                self.rest = Rest::Bad(error);
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }
}

impl Chunks for Parallel {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(self.next()?.map(|(_, bytes)| bytes))
    }

    fn next_placed(&mut self, _received: u64) -> Result<Option<Placed>, Error> {
        if !self.in_any_order {
            self.workers.pool.allow_any_order();
            self.in_any_order = true;
        }
        self.next()
    }
}
