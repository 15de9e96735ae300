//! xz, the .xz file format 1.2 (tukaani.org/xz/xz-file-format.txt).
//!
//! A stream consists of blocks that are compressed independently; `xz -T` writes one for every 24 MiB or so. With one
//! thread, liblzma decodes the streams as they come ([`Xz`]). With more, [`Parallel`] finds the blocks ([`walk`],
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

use super::decoder::Decoder;
use crate::chunks::Chunks;
use crate::options::Limits;

use self::engine::Xz;
pub(super) use self::engine::begins_stream;
use self::parallel::Parallel;
use self::worker::Workers;

/// Decodes `inner` with as many threads as the limits and the system allow.
pub(super) fn decoder(inner: Box<dyn Chunks>, limits: &Limits) -> Box<dyn Chunks> {
    match Workers::start(limits) {
        Some(workers) => Box::new(Parallel::new(inner, workers)),
        None => Box::new(Decoder::<Xz>::new(inner, limits)),
    }
}
