//! Decodes xz, in the .xz file format 1.2 (tukaani.org/xz/xz-file-format.txt).
//!
//! A stream consists of blocks that are compressed independently; `xz -T` writes one for about
//! every 24 MiB. With one thread, liblzma decodes the streams sequentially ([`XzEngine`]). With
//! several threads, [`ParallelXzReader`] finds the blocks ([`walk`], [`mod@block`]) and verifies
//! the data around them ([`framing`], [`index`]). It passes the blocks to threads that use the
//! same decoder ([`pool`], [`state`], [`worker`]).
//!
//! liblzma has a multi-threaded decoder of its own. It holds whole decoded blocks to return them
//! in order, which takes 180 MiB for the output of `xz -6 -T`, where this decoder takes 50 MiB. A
//! raw disk can be written in any order, so decoded data does not have to wait. An image is read
//! in order, and the threads run ahead by a bounded amount.

mod block;
mod decoder;
mod engine;
mod framing;
mod index;
mod parallel;
mod pool;
mod state;
mod walk;
mod worker;

use stream::chunks::ChunkStream;
use stream::options::DecodeLimits;

use super::decoder::LayerDecoder;

pub(super) use self::engine::XzEngine;
use self::parallel::ParallelXzReader;
use self::worker::DecoderThreads;

/// Returns a decoder for `inner` with as many threads as the limits and the system allow.
pub(super) fn new_decoder(
    inner: Box<dyn ChunkStream>,
    limits: &DecodeLimits,
) -> Box<dyn ChunkStream> {
    match DecoderThreads::start(limits) {
        Some(workers) => Box::new(ParallelXzReader::new(inner, workers)),
        None => Box::new(LayerDecoder::<XzEngine>::new(inner, limits)),
    }
}
