//! liblzma's stream decoder as a [`DecoderEngine`].

use liblzma::stream::{Action, Error, Status, Stream, TELL_UNSUPPORTED_CHECK};
use stream::buffer::ChunkBuffer;
use stream::codec::Codec;
use stream::memory::MemoryGrant;
use stream::options::DecodeLimits;

use super::super::decoder::{DecoderEngine, EngineError, MemberPadding, advance_input};
use super::framing::HEADER_MAGIC as MAGIC;

/// liblzma's stream decoder. A new one is created for each stream of the file.
pub(in super::super) struct XzEngine {
    stream: Stream,
    /// The grant for the memory of the decoder. `None` if the caller has already accounted for it.
    grant: Option<MemoryGrant>,
}

impl XzEngine {
    /// Creates a decoder whose dictionary was granted already.
    pub(super) fn without_memory_limit() -> Result<Self, EngineError> {
        let stream = Self::new_stream(u64::MAX)?;
        Ok(Self { stream, grant: None })
    }

    fn new_stream(memory_bytes: u64) -> Result<Stream, EngineError> {
        // Without this flag, an integrity check that liblzma does not support would be skipped
        // silently.
        Stream::new_stream_decoder(memory_bytes.max(1), TELL_UNSUPPORTED_CHECK)
            .map_err(|error| EngineError::Corrupt(error.to_string()))
    }

    /// Returns the memory that the current block needs, and sets the limit of the stream to it.
    /// The bindings do not report this number. liblzma rejects a lower limit, however, so the
    /// number is found by binary search. Nothing is allocated here.
    fn needed_memory(&mut self) -> u64 {
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

    /// Raises the memory limit for the current block. liblzma stops at a block that needs more
    /// than the limit, and continues after the limit was raised.
    fn ask_for_memory(&mut self) -> Result<(), EngineError> {
        let needed = self.needed_memory();
        match &mut self.grant {
            Some(grant) => Ok(grant.grow_to(needed)?),
            None => Ok(()),
        }
    }
}

fn engine_error(error: &Error) -> EngineError {
    match error {
        Error::UnsupportedCheck => EngineError::Newer("an integrity check"),
        Error::Options => EngineError::Newer("a filter"),
        other => EngineError::Corrupt(other.to_string()),
    }
}

impl DecoderEngine for XzEngine {
    const CODEC: Codec = Codec::Xz;
    const HEAD_BYTES: usize = MAGIC.len() + 1;
    /// Stream padding (§2.2).
    const PADDING: MemberPadding = MemberPadding::Words;

    fn is_member_start(head: &[u8]) -> bool {
        head.starts_with(&MAGIC) && head.get(MAGIC.len()).is_none_or(|flags| *flags == 0)
    }

    fn begin_member(
        used: Option<Self>,
        _head: &[u8],
        limits: &DecodeLimits,
    ) -> Result<Self, EngineError> {
        let grant = used.and_then(|used| used.grant);
        let grant = grant.unwrap_or_else(|| limits.memory.empty_grant());
        Ok(Self { stream: Self::new_stream(grant.granted_bytes())?, grant: Some(grant) })
    }

    fn decode_step(
        &mut self,
        input: &mut &[u8],
        output: &mut ChunkBuffer,
    ) -> Result<bool, EngineError> {
        let before = (self.stream.total_in(), self.stream.total_out());
        let outcome = self.stream.process(input, output.spare_capacity(), Action::Run);
        advance_input(input, self.stream.total_in() - before.0);
        output.mark_filled(self.stream.total_out() - before.1);
        match outcome {
            Ok(status) => Ok(status == Status::StreamEnd),
            Err(Error::MemLimit) => {
                self.ask_for_memory()?;
                self.decode_step(input, output)
            }
            Err(error) => Err(engine_error(&error)),
        }
    }
}
