//! liblzma's stream decoder, as an [`Engine`].

use liblzma::stream::{Action, Error, Status, Stream, TELL_UNSUPPORTED_CHECK};

use super::super::decoder::{Engine, Fault, Padding, cut};
use super::framing::HEADER_MAGIC as MAGIC;
use crate::buffer::Filling;
use crate::codec::Codec;
use crate::memory::Grant;
use crate::options::Limits;

/// True if an xz stream begins with `head`.
pub(in super::super) fn begins_stream(head: &[u8]) -> bool {
    head.starts_with(&MAGIC) && head.get(MAGIC.len()).is_none_or(|flags| *flags == 0)
}

/// liblzma's stream decoder, one for every stream of the file.
pub(super) struct Xz {
    stream: Stream,
    /// The memory that its dictionary is taken from; `None` if the caller has seen to that.
    grant: Option<Grant>,
}

impl Xz {
    /// A decoder whose dictionary was granted already.
    pub(super) fn granted() -> Result<Self, Fault> {
        let stream = Self::stream(u64::MAX)?;
        Ok(Self { stream, grant: None })
    }

    fn stream(memory_bytes: u64) -> Result<Stream, Fault> {
        // Without the flag a check that liblzma does not know would be skipped in silence.
        Stream::new_stream_decoder(memory_bytes.max(1), TELL_UNSUPPORTED_CHECK)
            .map_err(|error| Fault::Corrupt(error.to_string()))
    }

    /// The memory that the current block asks for, which becomes the stream's limit. The bindings do not tell, but the limit
    /// can be set to nothing less: the need is found by halving. Nothing is allocated by this.
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

    /// liblzma stops at a block that needs more than its limit, and goes on when it has that.
    fn ask_for_memory(&mut self) -> Result<(), Fault> {
        let needed = self.needed();
        match &mut self.grant {
            Some(grant) => Ok(grant.grow_to(needed)?),
            None => Ok(()),
        }
    }
}

fn fault(error: &Error) -> Fault {
    match error {
        Error::UnsupportedCheck => Fault::Corrupt("its integrity check is of an unknown type".to_owned()),
        other => Fault::Corrupt(other.to_string()),
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
        Ok(Self {
            stream: Self::stream(0)?,
            grant: Some(limits.memory.grant()),
        })
    }

    fn begin(&mut self, _head: &[u8]) -> Result<(), Fault> {
        self.stream = Self::stream(self.grant.as_ref().map_or(u64::MAX, Grant::bytes))?;
        Ok(())
    }

    fn step(&mut self, input: &mut &[u8], output: &mut Filling) -> Result<bool, Fault> {
        let before = (self.stream.total_in(), self.stream.total_out());
        let outcome = self.stream.process(input, output.room(), Action::Run);
        cut(input, self.stream.total_in() - before.0);
        output.filled(self.stream.total_out() - before.1);
        match outcome {
            Ok(status) => Ok(status == Status::StreamEnd),
            Err(Error::MemLimit) => {
                self.ask_for_memory()?;
                self.step(input, output)
            }
            Err(error) => Err(fault(&error)),
        }
    }
}
