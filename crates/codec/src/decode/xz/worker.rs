//! The threads that decode blocks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use stream::buffer::ChunkBuffer;
use stream::codec::Codec;
use stream::error::DecodeError;
use stream::options::DecodeLimits;

use super::super::decoder::{DecoderEngine, EngineError};
use super::decoder::BlockDecoder;
use super::pool::BlockPool;
use super::state::AssignedBlock;
use super::walk::{BlockPart, XzBlock};

/// Limit on the number of threads, even with more cores. Each thread uses up to 1 MiB of buffers,
/// and with dictionaries of the usual sizes, more threads would only wait for memory.
const MAX_THREADS: usize = 4;

/// The worker threads. They are stopped on drop.
pub(super) struct DecoderThreads {
    /// The state that is shared with the threads.
    pub(super) pool: Arc<BlockPool>,
    threads: Vec<JoinHandle<()>>,
}

impl DecoderThreads {
    /// Starts as many threads as `limits` and the system allow. `None` if that is at most one,
    /// since the reading thread can then decode the blocks itself.
    pub(super) fn start(limits: &DecodeLimits) -> Option<Self> {
        let wanted = limits.threads.get().min(MAX_THREADS);
        if wanted < 2 {
            return None;
        }
        let mut workers = Self { pool: Arc::default(), threads: Vec::new() };
        for _ in 0..wanted {
            let pool = Arc::clone(&workers.pool);
            let limits = limits.clone();
            let started =
                Builder::new().name("xz".to_owned()).spawn(move || run_worker(&pool, &limits));
            match started {
                Ok(thread) => workers.threads.push(thread),
                Err(error) => {
                    tracing::debug!(%error, "could not start another thread to decode xz")
                }
            }
        }
        (workers.threads.len() > 1).then_some(workers)
    }
}

impl Drop for DecoderThreads {
    fn drop(&mut self) {
        self.pool.close();
        for thread in self.threads.drain(..) {
            // `catch_panic` already turns a panic into an error, so the result of the thread is
            // ignored.
            drop(thread.join());
        }
    }
}

/// The main function of a thread. Decodes blocks until no more are needed.
fn run_worker(pool: &BlockPool, limits: &DecodeLimits) {
    while let Some(taken) = pool.take_block() {
        let (number, block) = (taken.number, taken.block);
        pool.finish_block(number, catch_panic(&block, || decode_block(taken, pool, limits)));
    }
}

/// Runs `decode` for `block` and turns a panic into an error. Otherwise the reader would wait
/// forever.
fn catch_panic<T>(
    block: &XzBlock,
    decode: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        let reason = "internal error, please report it: a decoding thread panicked".to_owned();
        Err(EngineError::Corrupt(reason).into_decode_error(Codec::Xz, block.start))
    })
}

/// Decodes a block until its input ends or its output is not needed any more. Returns the decoder
/// if it can be reused for another block.
fn decode_block(
    taken: AssignedBlock,
    pool: &BlockPool,
    limits: &DecodeLimits,
) -> Result<Option<BlockDecoder>, DecodeError> {
    let AssignedBlock { number, block, decoder: used } = taken;
    let mut decoder = BlockDecoder::for_block(used, &block, limits)
        .map_err(|fault| fault.into_decode_error(Codec::Xz, block.start))?;
    let mut at = block.start;
    let mut offset = block.offset;
    let mut output = ChunkBuffer::new(offset);
    // Delivers the output. Returns false if it is not needed any more.
    let mut hand_out = |output: &mut ChunkBuffer| {
        let start = offset;
        offset += output.len() as u64;
        let chunk = std::mem::replace(output, ChunkBuffer::new(offset)).freeze();
        pool.deliver_chunk(number, start, &chunk)
    };
    let decoded = loop {
        let bytes = match pool.take_part(number) {
            BlockPart::Bytes(bytes) => bytes,
            BlockPart::End(decoded) => break decoded,
            BlockPart::Cut => return Ok(None),
        };
        let mut input = &bytes[..];
        loop {
            let before = (input.len(), output.len());
            let outcome = decoder.engine.decode_step(&mut input, &mut output);
            at += (before.0 - input.len()) as u64;
            outcome.map_err(|fault| fault.into_decode_error(Codec::Xz, at))?;
            if output.is_full() {
                // The decoder may have more output for the same input.
                if !hand_out(&mut output) {
                    return Ok(None);
                }
            } else if input.is_empty() {
                break;
            } else if (input.len(), output.len()) == before {
                return Err(EngineError::Corrupt("the decoder makes no progress".to_owned())
                    .into_decode_error(Codec::Xz, at));
            }
        }
    };
    if !output.is_empty() && !hand_out(&mut output) {
        return Ok(None);
    }
    if offset - block.offset != decoded {
        let reason = format!("a block of {decoded} bytes decodes to {}", offset - block.offset);
        return Err(EngineError::Corrupt(reason).into_decode_error(Codec::Xz, at));
    }
    Ok(Some(decoder))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::super::framing::STREAM_HEADER_BYTES;
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_of_its_block() {
        let block = XzBlock {
            stream_header: [0; STREAM_HEADER_BYTES],
            dictionary: 0,
            start: 77,
            offset: 0,
        };
        // `resume_unwind` does not call the panic hook, so the test harness does not print this
        // intended panic.
        let outcome: Result<(), DecodeError> =
            catch_panic(&block, || std::panic::resume_unwind(Box::new("wanted")));
        assert!(matches!(outcome, Err(DecodeError::Corrupt { offset: 77, .. })), "{outcome:?}");
        assert!(catch_panic(&block, || Ok(())).is_ok());
    }

    #[test]
    fn dropping_the_workers_ends_their_threads() {
        let limits = |threads| DecodeLimits {
            threads: NonZeroUsize::new(threads).unwrap(),
            ..DecodeLimits::default()
        };
        assert!(DecoderThreads::start(&limits(1)).is_none());
        let workers = DecoderThreads::start(&limits(100)).unwrap();
        assert_eq!(workers.threads.len(), MAX_THREADS);
        let pool = Arc::clone(&workers.pool);
        drop(workers);
        assert_eq!(Arc::strong_count(&pool), 1);
    }
}
