//! The loop that all decoders share: pull, decode, look what follows a member, and say what went wrong.
//!
//! *Member* stands for what the formats call a member (gzip), a frame (zstd) or a stream (xz, bzip2): the
//! unit that can be concatenated with others of its kind and decodes to the concatenation.

use bytes::Bytes;

use super::buffers::{Buffers, CHUNK_BYTES};
use super::input::Input;
use super::{Codec, Limits};
use crate::chunks::Chunks;
use crate::error::{DecodeError, Error};

/// What differs between the codecs.
pub(super) trait Engine: Send + Sized {
    /// The codec, for its name.
    const CODEC: Codec;
    /// Bytes at the beginning of a member that [`Engine::begins`] and [`Engine::begin`] want to see.
    const HEAD_BYTES: usize;
    /// The zero bytes that may follow a member.
    const PADDING: Padding;

    /// True if a member begins with `head`.
    fn begins(head: &[u8]) -> bool;

    /// An engine that keeps to `limits`.
    fn new(limits: &Limits) -> Result<Self, Fault>;

    /// Makes ready for the member that begins with `head`; [`Engine::step`] is given those bytes again.
    fn begin(&mut self, head: &[u8]) -> Result<(), Fault>;

    /// Decodes from the front of `input`, which is cut by what was used, into the free capacity of
    /// `output`. True if the member is complete, with its checksums verified and all its output delivered.
    fn step(&mut self, input: &mut &[u8], output: &mut Vec<u8>) -> Result<bool, Fault>;
}

/// The zero bytes that a format allows after a member.
pub(super) enum Padding {
    /// None.
    Nowhere,
    /// Any number, up to the end of the stream.
    AtEnd,
    /// A multiple of four, between members and at the end.
    Words,
}

/// Why an engine gave up; [`Decoder`] adds the codec and the place.
#[derive(Debug)]
pub(super) enum Fault {
    /// The bytes are not what the format allows.
    Corrupt(String),
    /// The member asks for more memory than the limits allow.
    Memory {
        /// Bytes that it asks for.
        needed: u64,
        /// Bytes that it may have.
        limit: u64,
    },
}

/// Cuts the `count` bytes off `input` that a library says it has used.
pub(super) fn cut(input: &mut &[u8], count: u64) {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(input.len());
    *input = &input[count..];
}

enum State {
    /// Before the first member: there has to be one.
    Start,
    /// Inside a member.
    Member,
    /// After a member: another one, padding or the end.
    Between,
    /// After the end.
    End,
}

/// Decodes the members of one layer.
pub(super) struct Decoder<E> {
    input: Input,
    engine: Option<E>,
    limits: Limits,
    state: State,
    buffers: Buffers,
}

impl<E: Engine> Decoder<E> {
    pub(super) fn new(inner: Box<dyn Chunks>, limits: Limits) -> Self {
        let input = Input::new(inner);
        Self {
            input,
            engine: None,
            limits,
            state: State::Start,
            buffers: Buffers::default(),
        }
    }

    /// Begins the next member, or finds that there is none.
    fn begin(&mut self) -> Result<State, Error> {
        let first = matches!(self.state, State::Start);
        if !first {
            self.skip_padding()?;
        }
        let offset = self.input.offset();
        let head = self.input.head(E::HEAD_BYTES)?;
        if head.is_empty() && !first {
            return Ok(State::End);
        }
        if !E::begins(head) {
            let too_short = head.len() < E::HEAD_BYTES;
            return Err(match first {
                true if too_short => self.truncated(),
                true => self.corrupt("it does not begin with a valid header"),
                false => DecodeError::TrailingGarbage {
                    codec: E::CODEC.name(),
                    offset,
                }
                .into(),
            });
        }
        let begun = match &mut self.engine {
            Some(engine) => engine.begin(head),
            none => E::new(&self.limits).and_then(|engine| none.insert(engine).begin(head)),
        };
        begun.map(|()| State::Member).map_err(|fault| self.fail(fault))
    }

    /// Decodes some of the current member. The state that follows.
    fn step(&mut self, output: &mut Vec<u8>) -> Result<State, Error> {
        let Some(engine) = &mut self.engine else {
            return Ok(State::Start);
        };
        let written = output.len();
        let available = self.input.fill()?;
        let mut input = available;
        let outcome = engine.step(&mut input, output);
        let (had, used) = (available.len(), available.len() - input.len());
        self.input.consume(used);
        match outcome {
            Err(fault) => Err(self.fail(fault)),
            Ok(true) => Ok(State::Between),
            Ok(false) if used > 0 || output.len() > written => Ok(State::Member),
            Ok(false) if had == 0 => Err(self.truncated()),
            // No library should do this; if one does, waiting for it would hang.
            Ok(false) => Err(self.corrupt("the decoder makes no progress")),
        }
    }

    /// Consumes the zero bytes after a member, if the format allows them there.
    fn skip_padding(&mut self) -> Result<(), Error> {
        if matches!(E::PADDING, Padding::Nowhere) {
            return Ok(());
        }
        let start = self.input.offset();
        let at_end = loop {
            let bytes = self.input.fill()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            if zeros == 0 {
                break bytes.is_empty();
            }
            self.input.consume(zeros);
        };
        let zeros = self.input.offset() - start;
        let allowed = match E::PADDING {
            Padding::Nowhere => zeros == 0,
            Padding::AtEnd => zeros == 0 || at_end,
            Padding::Words => zeros.is_multiple_of(4),
        };
        if allowed {
            return Ok(());
        }
        Err(DecodeError::TrailingGarbage {
            codec: E::CODEC.name(),
            offset: start,
        }
        .into())
    }

    fn truncated(&self) -> Error {
        DecodeError::Truncated {
            codec: E::CODEC.name(),
            offset: self.input.seen(),
        }
        .into()
    }

    fn corrupt(&self, reason: &str) -> Error {
        self.fail(Fault::Corrupt(reason.to_owned()))
    }

    fn fail(&self, fault: Fault) -> Error {
        let codec = E::CODEC.name();
        match fault {
            Fault::Corrupt(reason) => DecodeError::Corrupt {
                codec,
                offset: self.input.offset(),
                reason,
            },
            Fault::Memory { needed, limit } => DecodeError::Memory { codec, needed, limit },
        }
        .into()
    }
}

impl<E: Engine> Chunks for Decoder<E> {
    /// Fills a whole chunk unless the end comes first, so that many small members or a slow source do not
    /// make many small chunks.
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let mut output = self.buffers.take();
        while output.len() < CHUNK_BYTES {
            self.state = match self.state {
                State::Start | State::Between => self.begin()?,
                State::Member => self.step(&mut output)?,
                State::End => break,
            };
        }
        Ok((!output.is_empty()).then(|| self.buffers.hand_out(output)))
    }
}
