//! The threads that decode blocks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::super::decoder::{Engine, Fault};
use super::super::{Codec, Limits};
use super::Xz;
use super::framing::STREAM_HEADER_BYTES;
use super::pool::Pool;
use super::state::Food;
use super::walk::Block;
use crate::buffer::{self, Filling};
use crate::error::DecodeError;
use crate::memory::Held;

/// Most threads, however many cores there are: each has up to 1 MiB of buffers beside its dictionary.
const MAX_THREADS: usize = 8;

/// The threads; they end when this is dropped.
pub(super) struct Workers {
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// As many as `limits` allows, or as the system lets start. `None` if that is no more than one: the thread that
    /// reads can decode as well.
    pub(super) fn start(limits: &Limits) -> Option<Self> {
        let wanted = limits.threads.get().min(MAX_THREADS);
        if wanted < 2 {
            return None;
        }
        let mut workers = Self {
            pool: Arc::default(),
            threads: Vec::new(),
        };
        for _ in 0..wanted {
            let pool = Arc::clone(&workers.pool);
            let limits = *limits;
            let started = Builder::new()
                .name("xz".to_owned())
                .spawn(move || work(&pool, &limits));
            match started {
                Ok(thread) => workers.threads.push(thread),
                Err(error) => tracing::debug!(%error, "could not start another thread to decode xz"),
            }
        }
        (workers.threads.len() > 1).then_some(workers)
    }

    /// What is shared with them.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.pool.close();
        for thread in self.threads.drain(..) {
            // `work` catches what panics.
            drop(thread.join());
        }
    }
}

/// What a thread does: block after block, until nobody needs more.
fn work(pool: &Pool, limits: &Limits) {
    let mut worker = Worker {
        pool,
        limits,
        decoder: None,
        buffers: buffer::Pool::default(),
    };
    while let Some((number, block)) = worker.take() {
        pool.finish(number, guarded(&block, || worker.decode(number, &block)));
    }
}

/// What `decode` says of `block`; a panic is an error, or the reader would wait for ever.
fn guarded(block: &Block, decode: impl FnOnce() -> Result<(), DecodeError>) -> Result<(), DecodeError> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        let reason = "internal error, please report it: a decoding thread panicked".to_owned();
        Err(Fault::Corrupt(reason).at(Codec::Xz, block.start))
    })
}

struct Worker<'p> {
    pool: &'p Pool,
    limits: &'p Limits,
    /// A decoder that is ready for a block of streams with this header. liblzma's stream decoder cannot tell that the
    /// blocks which it is given are not all of their stream, as long as it does not see an index.
    decoder: Option<([u8; STREAM_HEADER_BYTES], Xz)>,
    buffers: buffer::Pool,
}

impl Worker<'_> {
    fn take(&mut self) -> Option<(u64, Block)> {
        if let Some(taken) = self.pool.try_take() {
            return Some(taken);
        }
        self.decoder = None;
        self.pool.take()
    }

    /// Decodes a block, as far as it is there and somebody needs it.
    fn decode(&mut self, number: u64, block: &Block) -> Result<(), DecodeError> {
        let _dictionary = Held::new(usize::try_from(block.dictionary).unwrap_or(usize::MAX));
        let mut decoder = self
            .decoder(block)
            .map_err(|fault| fault.at(Codec::Xz, block.start))?;
        let mut at = block.start;
        let mut offset = block.offset;
        let mut output = self.buffers.take(offset);
        let decoded = loop {
            let bytes = match self.pool.food(number) {
                Food::Bytes(bytes) => bytes,
                Food::Whole(decoded) => break decoded,
                Food::Nothing => return Ok(()),
            };
            let mut input = &bytes[..];
            loop {
                let before = (input.len(), output.len());
                let outcome = decoder.step(&mut input, &mut output);
                at += (before.0 - input.len()) as u64;
                outcome.map_err(|fault| fault.at(Codec::Xz, at))?;
                if output.is_full() {
                    // There may be more to come of the same input.
                    if !self.hand_out(number, &mut offset, &mut output) {
                        return Ok(());
                    }
                } else if input.is_empty() {
                    break;
                } else if (input.len(), output.len()) == before {
                    return Err(Fault::Corrupt("the decoder makes no progress".to_owned()).at(Codec::Xz, at));
                }
            }
        };
        if !output.is_empty() && !self.hand_out(number, &mut offset, &mut output) {
            return Ok(());
        }
        if offset - block.offset != decoded {
            let reason = format!("a block of {decoded} bytes decodes to {}", offset - block.offset);
            return Err(Fault::Corrupt(reason).at(Codec::Xz, at));
        }
        self.decoder = Some((block.stream_header, decoder));
        Ok(())
    }

    /// A decoder that has seen the header of the block's stream.
    fn decoder(&mut self, block: &Block) -> Result<Xz, Fault> {
        match self.decoder.take() {
            Some((header, decoder)) if header == block.stream_header => Ok(decoder),
            other => {
                // Its memory is given back before more is taken.
                drop(other);
                let mut decoder = Xz::new(self.limits)?;
                decoder.step(&mut &block.stream_header[..], &mut self.buffers.take(0))?;
                Ok(decoder)
            }
        }
    }

    /// Delivers `output`, which belongs at `offset`, and leaves an empty buffer and the offset behind it.
    fn hand_out(&mut self, number: u64, offset: &mut u64, output: &mut Filling) -> bool {
        let at = *offset;
        *offset += output.len() as u64;
        let chunk = std::mem::replace(output, self.buffers.take(*offset)).freeze();
        self.pool.deliver(number, at, chunk)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn a_panic_is_an_error_of_its_block() {
        let block = Block {
            stream_header: [0; STREAM_HEADER_BYTES],
            dictionary: 0,
            start: 77,
            offset: 0,
        };
        // Quiet: the hook of the test harness would print a panic that is wanted.
        let outcome = guarded(&block, || std::panic::resume_unwind(Box::new("wanted")));
        assert!(
            matches!(outcome, Err(DecodeError::Corrupt { offset: 77, .. })),
            "{outcome:?}"
        );
        assert!(guarded(&block, || Ok(())).is_ok());
    }

    #[test]
    fn dropping_the_workers_ends_their_threads() {
        let limits = |threads| Limits {
            threads: NonZeroUsize::new(threads).unwrap(),
            ..Limits::default()
        };
        assert!(Workers::start(&limits(1)).is_none());
        let workers = Workers::start(&limits(100)).unwrap();
        assert_eq!(workers.threads.len(), MAX_THREADS);
        let pool = Arc::clone(&workers.pool);
        drop(workers);
        assert_eq!(Arc::strong_count(&pool), 1);
    }
}
