//! xz, the .xz file format 1.2 (tukaani.org/xz/xz-file-format.txt).
//!
//! A stream consists of blocks that are compressed independently; `xz -T` writes one for every 24 MiB or so. With one
//! thread, liblzma decodes the streams as they come ([`XzEngine`]). With more, [`ParallelXzReader`] finds the blocks ([`walk`],
//! [`mod@block`]), verifies itself what lies around them ([`framing`], [`index`]), and hands them to threads ([`pool`],
//! [`state`], [`worker`]) whose decoder is the same.
//!
//! liblzma has a multi-threaded decoder of its own. It holds whole decoded blocks to give them out in order: 180 MiB
//! for what `xz -6 -T` writes, where this takes 50. A raw disk can be written in any order, so that nothing decoded has to wait; an
//! image gets its bytes in order, and threads run ahead by a bounded amount.

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

use super::decoder::LayerDecoder;
use crate::chunks::ChunkStream;
use crate::options::DecodeLimits;

use self::engine::XzEngine;
pub(super) use self::engine::begins_stream;
use self::parallel::ParallelXzReader;
use self::worker::DecoderThreads;

/// Decodes `inner` with as many threads as the limits and the system allow.
pub(super) fn new_decoder(inner: Box<dyn ChunkStream>, limits: &DecodeLimits) -> Box<dyn ChunkStream> {
    match DecoderThreads::start(limits) {
        Some(workers) => Box::new(ParallelXzReader::new(inner, workers)),
        None => Box::new(LayerDecoder::<XzEngine>::new(inner, limits)),
    }
}
