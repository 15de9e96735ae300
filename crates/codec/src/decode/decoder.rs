//! The loop that all decoders share. It reads input, decodes it, checks what follows a member, and
//! creates the errors.
//!
//! A *member* is what the formats call a member (gzip), a frame (zstd) or a stream (xz, bzip2):
//! the unit that can be concatenated with others of its kind. Concatenated members decode to the
//! concatenation of their content.

use bytes::Bytes;
use stream::buffer::ChunkBuffer;
use stream::chunks::ChunkStream;
use stream::codec::Codec;
use stream::cursor::ChunkCursor;
use stream::error::{DecodeError, Error};
use stream::memory::MemoryLimitError;
use stream::options::DecodeLimits;
use stream::zeros::ZEROS;

use super::expansion_budget;

/// The part of decoding that differs between the codecs.
pub(super) trait DecoderEngine: Send + Sized {
    /// The codec, whose name appears in errors.
    const CODEC: Codec;
    /// Number of bytes at the beginning of a member that [`DecoderEngine::is_member_start`] and
    /// [`DecoderEngine::begin_member`] need.
    const HEAD_BYTES: usize;
    /// The zero bytes that are allowed after a member.
    const PADDING: MemberPadding;
    /// Free capacity that [`DecoderEngine::decode_step`] needs in the output.
    const STEP_BYTES: usize = 1;

    /// Returns true if `head` is the beginning of a member.
    fn is_member_start(head: &[u8]) -> bool;

    /// Returns an engine for the member that begins with `head`, which stays within `limits`. The
    /// same bytes are passed to [`DecoderEngine::decode_step`] again. `used` is the engine of the
    /// member before. Memory whose size depends on the stream is charged to the memory budget
    /// before it is allocated, and stays charged while the engine uses it.
    fn begin_member(
        used: Option<Self>,
        head: &[u8],
        limits: &DecodeLimits,
    ) -> Result<Self, EngineError>;

    /// Decodes from the front of `input` into the free capacity of `output`, and removes the
    /// consumed bytes from `input`. Returns true if the member is complete, its checksums are
    /// verified and all of its output was written.
    fn decode_step(
        &mut self,
        input: &mut &[u8],
        output: &mut ChunkBuffer,
    ) -> Result<bool, EngineError>;

    /// Consumes the next member if it contains only zeros and the codec can detect that without
    /// decoding it. Returns the number of zeros.
    fn take_zeros(_input: &mut ChunkCursor) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}

/// The padding that a format allows after a member.
pub(super) enum MemberPadding {
    /// No padding.
    Nowhere,
    /// Any number of zero bytes, but only at the end of the stream.
    AtEnd,
    /// A multiple of four zero bytes, between members and at the end of the stream.
    Words,
}

/// The reason why an engine failed. [`EngineError::into_decode_error`] adds the codec and the
/// offset.
#[derive(Debug)]
pub(super) enum EngineError {
    /// The bytes violate the format.
    Corrupt(String),
    /// The member needs more memory than is left in the budget.
    Memory(MemoryLimitError),
    /// The member has a part of this kind that only a newer version of the format defines.
    Newer(&'static str),
}

impl From<MemoryLimitError> for EngineError {
    fn from(exceeded: MemoryLimitError) -> Self {
        Self::Memory(exceeded)
    }
}

impl EngineError {
    /// Converts this reason into the error of the layer `codec`, which has consumed `offset`
    /// bytes.
    pub(super) fn into_decode_error(self, codec: Codec, offset: u64) -> DecodeError {
        let codec = codec.name();
        match self {
            Self::Corrupt(reason) => DecodeError::Corrupt { codec, offset, reason },
            Self::Memory(exceeded) => DecodeError::Memory { codec, exceeded },
            Self::Newer(part) => DecodeError::Newer { codec, part },
        }
    }
}

/// Removes from `input` the `count` bytes that a library reported as consumed.
pub(super) fn advance_input(input: &mut &[u8], count: u64) {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(input.len());
    *input = &input[count..];
}

enum DecoderState {
    /// Before the first member, which is mandatory.
    Start,
    /// Inside a member.
    Member,
    /// Inside a member of zeros, with the number of zeros that were not returned yet.
    Zeros(u64),
    /// After a member. Another member, padding or the end of the stream follows.
    Between,
    /// At the end of the stream.
    End,
}

/// Decodes the members of one layer.
pub(super) struct LayerDecoder<E> {
    input: ChunkCursor,
    engine: Option<E>,
    limits: DecodeLimits,
    state: DecoderState,
    /// Decoded bytes that were returned.
    decoded: u64,
    members: u64,
}

/// Lower bound on the bytes that can be decoded in the time that it takes to begin a member: 0.2
/// ms for bzip2, which clears memory for each member, and 1 µs for the other codecs. Members count
/// as this many bytes of input, so that a stream of empty members is rejected.
const MEMBER_BYTES: u64 = 4096;

impl<E: DecoderEngine> LayerDecoder<E> {
    pub(super) fn new(inner: Box<dyn ChunkStream>, limits: &DecodeLimits) -> Self {
        let input = ChunkCursor::new(inner);
        Self {
            input,
            engine: None,
            limits: limits.clone(),
            state: DecoderState::Start,
            decoded: 0,
            members: 0,
        }
    }

    /// Begins the next member. Returns the state `End` if no member follows.
    fn begin_member(&mut self) -> Result<DecoderState, Error> {
        if !find_member::<E>(&mut self.input, matches!(self.state, DecoderState::Start))? {
            return Ok(DecoderState::End);
        }
        self.members += 1;
        if !expansion_budget::is_worth(self.members * MEMBER_BYTES, self.decoded, &self.limits) {
            return Err(expansion_budget::barren_error(
                E::CODEC,
                self.input.offset(),
                self.decoded,
            ));
        }
        if let Some(zeros) = E::take_zeros(&mut self.input)? {
            return Ok(DecoderState::Zeros(zeros));
        }
        let head = self.input.peek_bytes(E::HEAD_BYTES)?;
        let engine = E::begin_member(self.engine.take(), head, &self.limits);
        self.engine = Some(engine.map_err(|fault| decode_error::<E>(&self.input, fault))?);
        Ok(DecoderState::Member)
    }

    /// Decodes a part of the current member and returns the next state.
    fn decode_step(&mut self, output: &mut ChunkBuffer) -> Result<DecoderState, Error> {
        let Some(engine) = &mut self.engine else {
            return Ok(DecoderState::Start);
        };
        let written = output.len();
        let available = self.input.fill_buffer()?;
        let mut input = available;
        let outcome = engine.decode_step(&mut input, output);
        let (had, used) = (available.len(), available.len() - input.len());
        self.input.consume(used);
        match outcome {
            Err(fault) => Err(decode_error::<E>(&self.input, fault)),
            Ok(true) => Ok(DecoderState::Between),
            Ok(false) if used > 0 || output.len() > written => Ok(DecoderState::Member),
            Ok(false) if had == 0 => Err(truncated_error::<E>(&self.input)),
            // A library should always make progress. Without this error, the loop might never end.
            Ok(false) => {
                let fault = EngineError::Corrupt("the decoder makes no progress".to_owned());
                Err(decode_error::<E>(&self.input, fault))
            }
        }
    }
}

impl<E: DecoderEngine> ChunkStream for LayerDecoder<E> {
    /// Fills a whole chunk unless the stream ends first. Many small members or a slow source
    /// therefore do not produce many small chunks.
    ///
    /// Members of zeros become slices of [`ZEROS`], which later stages recognise. A terabyte of
    /// zeros takes less than a second.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let decoded = self.decoded;
        let mut output: Option<ChunkBuffer> = None;
        while output.as_mut().is_none_or(|output| output.spare_capacity().len() >= E::STEP_BYTES) {
            self.state = match self.state {
                DecoderState::Start | DecoderState::Between | DecoderState::Zeros(0) => {
                    self.begin_member()?
                }
                DecoderState::Member => {
                    self.decode_step(output.get_or_insert_with(|| ChunkBuffer::new(decoded)))?
                }
                DecoderState::Zeros(count) if output.as_ref().is_none_or(ChunkBuffer::is_empty) => {
                    let part = usize::try_from(count).unwrap_or(usize::MAX).min(ZEROS.len());
                    self.state = DecoderState::Zeros(count - part as u64);
                    self.decoded += part as u64;
                    return Ok(Some(Bytes::from_static(&ZEROS[..part])));
                }
                DecoderState::Zeros(_) | DecoderState::End => break,
            };
        }
        let bytes = output.filter(|output| !output.is_empty()).map(ChunkBuffer::freeze);
        self.decoded += bytes.as_ref().map_or(0, Bytes::len) as u64;
        Ok(bytes)
    }
}

/// Moves to the next member, skipping the padding before it. Returns `false` at the end of the
/// stream; for the `first` member that is an error instead.
pub(super) fn find_member<E: DecoderEngine>(
    input: &mut ChunkCursor,
    first: bool,
) -> Result<bool, Error> {
    if !first {
        skip_padding::<E>(input)?;
    }
    let offset = input.offset();
    let head = input.peek_bytes(E::HEAD_BYTES)?;
    if head.is_empty() && !first {
        return Ok(false);
    }
    if E::is_member_start(head) {
        return Ok(true);
    }
    if !first {
        return Err(trailing_garbage::<E>(offset));
    }
    if head.len() < E::HEAD_BYTES {
        return Err(truncated_error::<E>(input));
    }
    let fault = EngineError::Corrupt("it does not begin with a valid header".to_owned());
    Err(decode_error::<E>(input, fault))
}

/// Skips the zero bytes after a member, as far as the format allows them.
fn skip_padding<E: DecoderEngine>(input: &mut ChunkCursor) -> Result<(), Error> {
    if matches!(E::PADDING, MemberPadding::Nowhere) {
        return Ok(());
    }
    let start = input.offset();
    let at_end = loop {
        let bytes = input.fill_buffer()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if zeros == 0 {
            break bytes.is_empty();
        }
        input.consume(zeros);
    };
    let zeros = input.offset() - start;
    let allowed = match E::PADDING {
        MemberPadding::Nowhere => zeros == 0,
        // As in gzip(1), zeros pad the last block of a tape, and nothing may follow them.
        MemberPadding::AtEnd => zeros == 0 || at_end,
        MemberPadding::Words => zeros.is_multiple_of(4),
    };
    if allowed { Ok(()) } else { Err(trailing_garbage::<E>(start)) }
}

/// Returns the error for a `fault` at the cursor.
pub(super) fn decode_error<E: DecoderEngine>(input: &ChunkCursor, fault: EngineError) -> Error {
    fault.into_decode_error(E::CODEC, input.offset()).into()
}

/// Returns the error for a stream that ended inside a member.
pub(super) fn truncated_error<E: DecoderEngine>(input: &ChunkCursor) -> Error {
    DecodeError::Truncated { codec: E::CODEC.name(), offset: input.buffered_end() }.into()
}

fn trailing_garbage<E: DecoderEngine>(offset: u64) -> Error {
    DecodeError::TrailingGarbage { codec: E::CODEC.name(), offset }.into()
}
