//! The loop that all decoders share: pull, decode, look what follows a member, and say what went wrong.
//!
//! *Member* stands for what the formats call a member (gzip), a frame (zstd) or a stream (xz, bzip2): the
//! unit that can be concatenated with others of its kind and decodes to the concatenation.

use crate::cursor::ChunkCursor;
use bytes::Bytes;

use super::expansion_budget;
use crate::buffer::ChunkBuffer;
use crate::chunks::ChunkStream;
use crate::codec::Codec;
use crate::error::{DecodeError, Error};
use crate::memory::MemoryLimitError;
use crate::options::DecodeLimits;
use crate::zeros::ZEROS;

/// The part of decoding that differs between the codecs.
pub(super) trait DecoderEngine: Send + Sized {
    /// The codec, for its name.
    const CODEC: Codec;
    /// Bytes at the beginning of a member that [`DecoderEngine::is_member_start`] and [`DecoderEngine::begin_member`] want to see.
    const HEAD_BYTES: usize;
    /// The zero bytes that may follow a member.
    const PADDING: MemberPadding;

    /// True if a member begins with `head`.
    fn is_member_start(head: &[u8]) -> bool;

    /// An engine that keeps to `limits`: whatever its size depends on the stream for is granted before it is taken, and
    /// stays granted as long as the engine has it.
    fn new(limits: &DecodeLimits) -> Result<Self, EngineError>;

    /// Makes ready for the member that begins with `head`; [`DecoderEngine::decode_step`] is given those bytes again.
    fn begin_member(&mut self, head: &[u8]) -> Result<(), EngineError>;

    /// Decodes from the front of `input`, which is cut by what was used, into the free capacity of
    /// `output`. True if the member is complete, with its checksums verified and all its output delivered.
    fn decode_step(&mut self, input: &mut &[u8], output: &mut ChunkBuffer) -> Result<bool, EngineError>;

    /// Consumes the next member if it holds nothing but zeros and the codec can tell without decoding it. Returns how many.
    fn take_zeros(_input: &mut ChunkCursor) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}

/// The zero bytes that a format allows after a member.
pub(super) enum MemberPadding {
    /// None.
    Nowhere,
    /// Any number, up to the end of the stream.
    AtEnd,
    /// A multiple of four, between members and at the end.
    Words,
}

/// The reason for which an engine gave up; [`EngineError::into_decode_error`] adds the codec and the place.
#[derive(Debug)]
pub(super) enum EngineError {
    /// The bytes are not what the format allows.
    Corrupt(String),
    /// The member asks for more memory than there is for it.
    Memory(MemoryLimitError),
}

impl From<MemoryLimitError> for EngineError {
    fn from(exceeded: MemoryLimitError) -> Self {
        Self::Memory(exceeded)
    }
}

impl EngineError {
    /// The error of the layer `codec` that has consumed `offset` bytes.
    pub(super) fn into_decode_error(self, codec: Codec, offset: u64) -> DecodeError {
        let codec = codec.name();
        match self {
            Self::Corrupt(reason) => DecodeError::Corrupt { codec, offset, reason },
            Self::Memory(exceeded) => DecodeError::Memory { codec, exceeded },
        }
    }
}

/// Cuts the `count` bytes off `input` that a library says it has used.
pub(super) fn advance_input(input: &mut &[u8], count: u64) {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(input.len());
    *input = &input[count..];
}

enum DecoderState {
    /// Before the first member: there has to be one.
    Start,
    /// Inside a member.
    Member,
    /// Inside a member of zeros, of which so many have not been handed out.
    Zeros(u64),
    /// After a member: another one, padding or the end.
    Between,
    /// After the end.
    End,
}

/// Decodes the members of one layer.
pub(super) struct LayerDecoder<E> {
    input: ChunkCursor,
    engine: Option<E>,
    limits: DecodeLimits,
    state: DecoderState,
    /// Bytes that were decoded and handed out.
    decoded: u64,
    members: u64,
}

/// Bytes that can be decoded in the time that a member costs, at least: 0.2 ms for bzip2, which clears memory for each, and 1 µs
/// for the others.
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

    /// Begins the next member, or finds that there is none.
    fn begin_member(&mut self) -> Result<DecoderState, Error> {
        if !find_member::<E>(&mut self.input, matches!(self.state, DecoderState::Start))? {
            return Ok(DecoderState::End);
        }
        self.members += 1;
        if !expansion_budget::is_worth(self.members * MEMBER_BYTES, self.decoded, &self.limits) {
            return Err(expansion_budget::barren_error(E::CODEC, self.input.offset(), self.decoded));
        }
        if let Some(zeros) = E::take_zeros(&mut self.input)? {
            return Ok(DecoderState::Zeros(zeros));
        }
        let head = self.input.peek_bytes(E::HEAD_BYTES)?;
        let begun = match &mut self.engine {
            Some(engine) => engine.begin_member(head),
            none => E::new(&self.limits).and_then(|engine| none.insert(engine).begin_member(head)),
        };
        begun.map(|()| DecoderState::Member).map_err(|fault| self.decode_error(fault))
    }

    /// Decodes some of the current member, and returns the state that follows.
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
            Err(fault) => Err(self.decode_error(fault)),
            Ok(true) => Ok(DecoderState::Between),
            Ok(false) if used > 0 || output.len() > written => Ok(DecoderState::Member),
            Ok(false) if had == 0 => Err(truncated_error::<E>(&self.input)),
            // No library should do this; if one does, waiting for it would hang.
            Ok(false) => {
                Err(self.decode_error(EngineError::Corrupt("the decoder makes no progress".to_owned())))
            }
        }
    }

    fn decode_error(&self, fault: EngineError) -> Error {
        fault.into_decode_error(E::CODEC, self.input.offset()).into()
    }
}

impl<E: DecoderEngine> ChunkStream for LayerDecoder<E> {
    /// Fills a whole chunk unless the end comes first, so that many small members or a slow source do not
    /// make many small chunks.
    ///
    /// Members of zeros become parts of [`ZEROS`], which later stages recognise: a terabyte of them costs less than a second.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let decoded = self.decoded;
        let mut output: Option<ChunkBuffer> = None;
        while output.as_ref().is_none_or(|output| !output.is_full()) {
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

/// Moves to the next member, over the padding before it. `false` if there is none, which only the `first` may not be.
pub(super) fn find_member<E: DecoderEngine>(input: &mut ChunkCursor, first: bool) -> Result<bool, Error> {
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
    let too_short = head.len() < E::HEAD_BYTES;
    Err(match first {
        true if too_short => truncated_error::<E>(input),
        true => EngineError::Corrupt("it does not begin with a valid header".to_owned())
            .into_decode_error(E::CODEC, offset)
            .into(),
        false => trailing_garbage::<E>(offset),
    })
}

/// Consumes the zero bytes after a member, if the format allows them there.
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
        // As gzip(1): zeros fill the last block of a tape, and nothing may follow them.
        MemberPadding::AtEnd => zeros == 0 || at_end,
        MemberPadding::Words => zeros.is_multiple_of(4),
    };
    if allowed { Ok(()) } else { Err(trailing_garbage::<E>(start)) }
}

/// The stream ended inside a member.
pub(super) fn truncated_error<E: DecoderEngine>(input: &ChunkCursor) -> Error {
    DecodeError::Truncated { codec: E::CODEC.name(), offset: input.buffered_end() }.into()
}

fn trailing_garbage<E: DecoderEngine>(offset: u64) -> Error {
    DecodeError::TrailingGarbage { codec: E::CODEC.name(), offset }.into()
}
