//! xz, the .xz file format 1.2 (tukaani.org/xz/xz-file-format.txt).
//!
//! A stream consists of blocks that are compressed independently; `xz -T` writes one for every 24 MiB or so. With one
//! thread, liblzma decodes the streams as they come ([`Xz`]). With more, [`Parallel`] finds the blocks ([`walk`],
//! [`mod@block`]), verifies itself what lies around them ([`framing`], [`index`]), and hands them to threads ([`pool`],
//! [`state`], [`worker`]) whose decoder is the same.
//!
//! liblzma has a multi-threaded decoder of its own. It holds whole decoded blocks to give them out in order: 180 MiB
//! for what `xz -6 -T` writes.

mod block;
mod framing;
mod index;
mod parallel;
mod pool;
mod state;
mod walk;
mod worker;

use liblzma::stream::{Action, Error, Status, Stream, TELL_UNSUPPORTED_CHECK};

use super::decoder::{Decoder, Engine, Fault, Padding, cut};
use super::{Codec, Limits};
use crate::buffer::Filling;
use crate::chunks::Chunks;

use self::framing::HEADER_MAGIC as MAGIC;
use self::parallel::Parallel;
use self::worker::Workers;

/// What liblzma's limit counts beside the dictionary (decoder state, filters), rounded up, so that a
/// dictionary of exactly the limit is accepted.
const STATE_BYTES: u64 = 1 << 20;

/// True if an xz stream begins with `head`.
pub(super) fn begins_stream(head: &[u8]) -> bool {
    head.starts_with(&MAGIC) && head.get(MAGIC.len()).is_none_or(|flags| *flags == 0)
}

/// Decodes `inner` with as many threads as the limits and the system allow.
pub(super) fn decoder(inner: Box<dyn Chunks>, limits: &Limits) -> Box<dyn Chunks> {
    match Workers::start(limits) {
        Some(workers) => Box::new(Parallel::new(inner, workers)),
        None => Box::new(Decoder::<Xz>::new(inner, *limits)),
    }
}

/// liblzma's stream decoder, one for every stream of the file.
pub(super) struct Xz {
    stream: Stream,
    window_bytes: u64,
}

impl Xz {
    fn stream(window_bytes: u64) -> Result<Stream, Fault> {
        // Without the flag a check that liblzma does not know would be skipped in silence.
        Stream::new_stream_decoder(window_bytes.saturating_add(STATE_BYTES), TELL_UNSUPPORTED_CHECK)
            .map_err(|error| Fault::Corrupt(error.to_string()))
    }

    /// The memory that the current block asks for. The bindings do not tell, but the limit can be set to
    /// nothing less: the need is found by halving. Nothing is allocated by this.
    fn needed(&mut self) -> u64 {
        let (mut too_small, mut enough) = (self.stream.memlimit(), u64::MAX);
        while enough - too_small > 1 {
            let middle = too_small + (enough - too_small) / 2;
            match self.stream.set_memlimit(middle) {
                Ok(()) => enough = middle,
                Err(_) => too_small = middle,
            }
        }
        enough
    }

    fn fault(&mut self, error: Error) -> Fault {
        match error {
            Error::MemLimit => {
                let limit = self.stream.memlimit();
                Fault::Memory {
                    needed: self.needed(),
                    limit,
                }
            }
            Error::UnsupportedCheck => Fault::Corrupt("its integrity check is of an unknown type".to_owned()),
            other => Fault::Corrupt(other.to_string()),
        }
    }
}

impl Engine for Xz {
    const CODEC: Codec = Codec::Xz;
    const HEAD_BYTES: usize = MAGIC.len() + 1;
    /// Stream padding, §2.2.
    const PADDING: Padding = Padding::Words;

    fn begins(head: &[u8]) -> bool {
        begins_stream(head)
    }

    fn new(limits: &Limits) -> Result<Self, Fault> {
        let window_bytes = limits.window_bytes;
        Ok(Self {
            stream: Self::stream(window_bytes)?,
            window_bytes,
        })
    }

    fn begin(&mut self, _head: &[u8]) -> Result<(), Fault> {
        self.stream = Self::stream(self.window_bytes)?;
        Ok(())
    }

    fn step(&mut self, input: &mut &[u8], output: &mut Filling) -> Result<bool, Fault> {
        let before = (self.stream.total_in(), self.stream.total_out());
        let outcome = self.stream.process(input, output.room(), Action::Run);
        cut(input, self.stream.total_in() - before.0);
        output.filled(self.stream.total_out() - before.1);
        match outcome {
            Ok(status) => Ok(status == Status::StreamEnd),
            Err(error) => Err(self.fault(error)),
        }
    }
}
